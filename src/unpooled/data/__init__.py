"""Turns arrays, data frames, tables and files into clients; partitions and synthetic data for simulations. Nothing is sent."""
