"""Pure functions of arrays: they know nothing of clients, and send nothing."""
