"""The `unpooled` command: the library's equal for people who write no Python."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from importlib import import_module

COMMANDS = ("demo", "run", "resume", "report", "predict", "reproduce", "serve", "node", "status")


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    warnings.showwarning = _show_warning
    from unpooled.errors import UnpooledError

    try:
        return args.run(args) or 0
    except UnpooledError as error:
        return _fail(args, str(error))
    except KeyboardInterrupt:
        return _fail(args, "stopped", code=130)
    except BrokenPipeError:
        return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="unpooled", description=__doc__)
    top.add_argument("--version", action="version", version=_version())
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = import_module(f"unpooled.commands.{name}")
        module.add_parser(commands).set_defaults(run=module.run)
    return top


def _version() -> str:
    from unpooled import __version__

    return f"unpooled {__version__}"


def _fail(args: argparse.Namespace, sentence: str, code: int = 1) -> int:
    if getattr(args, "json", False):
        print(json.dumps({"error": sentence}))
    else:
        print(f"unpooled: {sentence}", file=sys.stderr)
    return code


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    """A warning is one line for a person, without the place in our source."""
    print(f"unpooled: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
