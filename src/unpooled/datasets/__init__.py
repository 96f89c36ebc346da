"""Data sets of the experiments: generators, partitions, shifts, and readers of published tables in the folder UNPOOLED_DATA."""
