"""Turns arrays, data frames, tables and files into clients; partitions and synthetic data for simulations. Nothing is sent.

Read in this order: `federate` (the function that users call), `tables` (which rows belong to which client), `files` and `frames` (columns
of files and data frames), `columns` and `schema` (columns of any kind as numbers), `checks` (what is refused), `tabled` and `designed`
(what a model sees of mixed columns), `check` (a comparison of sites' tables before a fit). For simulations: `partition`, `synthetic`,
`builtin`.
"""
