"""One command a file: `add_parser(subparsers)` says what it takes, `run(args) -> int` does it."""
