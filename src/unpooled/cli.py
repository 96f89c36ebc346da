"""The `unpooled` command: fit, predict, report and take part in studies from a shell."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from functools import partial
from importlib import import_module

from unpooled.commands import EXTRAS

COMMANDS = (
    "demo", "check", "run", "compare", "resume", "report", "predict", "reproduce", "serve", "node", "status",
    "verify", "watch", "card", "doctor", "completion",
)  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run one command; errors of ours become one sentence on standard error and the exit code 1."""
    args = argparse.Namespace()
    warnings.showwarning = partial(_show_warning, set())
    from unpooled.errors import UnpooledError

    try:
        parse(argv, args)
        code = args.run(args) or 0
        sys.stdout.flush()  # reports a full disk here, not when Python exits
        return code
    except UnpooledError as error:
        return _fail(args, "; ".join([str(error), *getattr(error, "__notes__", [])]))
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        remedy = f"pip install 'unpooled[{EXTRAS[module]}]', or '.[{EXTRAS[module]}]' in a checkout"
        return _fail(args, f"this needs {module}, which is not installed: {remedy}")
    except KeyboardInterrupt:
        return _fail(args, "stopped", code=130)
    except BrokenPipeError:  # the reader of the pipe has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(args, f"{error.filename or 'the output'}: {error.strerror or error}")


def parse(argv: list[str] | None, args: argparse.Namespace) -> None:
    """Read the command line into `args`; `key=value` may also follow options, where argparse does not expect it."""
    top = parser()
    _, rest = top.parse_known_args(argv, args)
    if hasattr(args, "overrides"):
        args.overrides = [*args.overrides, *(a for a in rest if not a.startswith("-"))]
        rest = [a for a in rest if a.startswith("-")]
    if rest:
        top.error(f"unrecognized arguments: {' '.join(rest)}")


def parser() -> argparse.ArgumentParser:
    """The parser of all commands, each of which adds its own."""
    top = argparse.ArgumentParser(prog="unpooled", description=__doc__)
    top.add_argument("--version", action="version", version=_version())
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = import_module(f"unpooled.commands.{name}")
        module.add_parser(commands).set_defaults(run=module.run)
    return top


def _version() -> str:
    """The text of --version."""
    from unpooled import __version__

    return f"unpooled {__version__}"


def _fail(args: argparse.Namespace, sentence: str, code: int = 1) -> int:
    """Print the sentence, as JSON where --json was given, and return the exit code."""
    if getattr(args, "json", False):
        print(json.dumps({"error": sentence}))
    else:
        from unpooled.errors import printable

        print(f"unpooled: {printable(sentence)}", file=sys.stderr)
    return code


def _show_warning(shown: set[str], message, category, filename, lineno, file=None, line=None) -> None:
    """Print a warning once, as one line without its place in the source."""
    if str(message) not in shown:
        shown.add(str(message))
        print(f"unpooled: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
