"""The commands of `unpooled`, one per file: `add_parser(subparsers)` declares the arguments, `run(args) -> int` runs it."""
