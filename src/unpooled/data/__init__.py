"""What turns tables, frames, files and arrays into clients; partitions, synthetic data and loaders. Nothing is sent."""
