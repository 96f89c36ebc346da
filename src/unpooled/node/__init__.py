"""A participant on its own machine: its data, what it lets out (policy), what it let out (ledger), and its state on disk."""
