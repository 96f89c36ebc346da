"""Data sets of the experiments: generators, partitions, shifts, and readers of published tables found through UNPOOLED_DATA."""
