"""`unpooled completion SHELL`: print a script that completes commands and options in bash, zsh or fish."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

SHELLS = ("bash", "zsh", "fish")
HOW = """\
bash:  unpooled completion bash > ~/.local/share/bash-completion/completions/unpooled
zsh:   unpooled completion zsh > ~/.unpooled-completion.zsh, and `source` it in ~/.zshrc
fish:  unpooled completion fish > ~/.config/fish/completions/unpooled.fish
"""
BASH = """\
_unpooled() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" path="" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case " {commands} " in
            *" $path${{path:+/}}${{COMP_WORDS[i]}} "*) path="$path${{path:+/}}${{COMP_WORDS[i]}}" ;;
        esac
    done
    local words=""
    case "$path" in
{cases}
    esac
    if [[ "$word" == -* ]]; then words="${{words##*|}}"; else words="${{words%%|*}}"; fi
    COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word"))
}}
complete -o filenames -F _unpooled unpooled
"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled completion`."""
    parser = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description=__doc__,
        epilog=HOW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(commands=commands)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the script, made from the parsers of all commands."""
    tree: dict[tuple[str, ...], Words] = {(): Words(inner=_inner(args.commands), options=["--help", "--version"])}
    for name, parser in args.commands.choices.items():
        tree.update(walk(parser, (name,)))
    print(fish(tree) if args.shell == "fish" else bash(tree, is_zsh=args.shell == "zsh"), end="")
    return 0


class Words(argparse.Namespace):
    """What may follow a command: the commands and choices inside it, and its options."""

    inner: dict[str, str]  # name -> one line of help
    options: list[str]


def walk(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Words]]:
    """(path, words) of a command and of every command inside it."""
    words = Words(inner={}, options=[])
    yield path, words
    for action in parser._actions:
        words.options += [option for option in action.option_strings if option.startswith("--")]
        if isinstance(action, argparse._SubParsersAction):
            words.inner.update(_inner(action))
            for name, inner in action.choices.items():
                yield from walk(inner, (*path, name))
        elif action.choices and not action.option_strings:
            words.inner.update(dict.fromkeys(map(str, action.choices), ""))


def _inner(action: Any) -> dict[str, str]:
    """name -> one line of help of the commands inside a command."""
    helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
    return {name: helps.get(name, "") for name in action.choices}


def bash(tree: dict[tuple[str, ...], Words], is_zsh: bool) -> str:
    """For each command the words after it and, behind a bar, its options."""
    cases = [
        f'        "{"/".join(path)}") words="{" ".join(w.inner)}|{" ".join(w.options)}" ;;' for path, w in tree.items()
    ]
    commands = " ".join("/".join(path) for path in tree if path)
    before = "autoload -U +X bashcompinit && bashcompinit\n" if is_zsh else ""
    return before + BASH.format(commands=commands, cases="\n".join(cases))


def fish(tree: dict[tuple[str, ...], Words]) -> str:
    """One line per word, valid after the commands before it."""
    lines = []
    for path, words in tree.items():
        seen = [f"__fish_seen_subcommand_from {name}" for name in path]
        unseen = [f"not __fish_seen_subcommand_from {' '.join(words.inner)}"] if words.inner else []
        for name, text in words.inner.items():
            lines.append(_fish_line("; and ".join([*seen, *unseen]), f"-a {name}", text))
        for option in words.options:
            lines.append(_fish_line("; and ".join(seen), f"-l {option.removeprefix('--')}", ""))
    return "\n".join(lines) + "\n"


def _fish_line(condition: str, what: str, text: str) -> str:
    """One `complete` line of fish."""
    condition = f' -n "{condition}"' if condition else ""
    text = text.replace("'", "\\'")
    return f"complete -c unpooled{condition} {what}" + (f" -d '{text}'" if text else "")
