"""`tokenloom completion`: what a shell needs to complete commands and options.

One idea: everything that can be typed is in the parser, so the script is generated from it, and a
new option is completed without another word. Values that are words are completed too; anything
else is a file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from tokenloom.cli.grammar import parser

__all__ = ["completion", "known_words"]

BASH = """\
_tokenloom() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" path="" at part
    for ((at = 1; at < COMP_CWORD; at++)); do
        part="${{COMP_WORDS[at]}}"
        [[ "$part" == -* ]] && break
        case " $(_tokenloom_words "$path") " in *" $part "*) path="$path $part" ;; *) break ;; esac
    done
    local offered
    offered="$(_tokenloom_values "$path" "$before")"
    [[ -z "$offered" ]] && offered="$(_tokenloom_words "$path")"
    COMPREPLY=($(compgen -W "$offered" -- "$word"))
}}
_tokenloom_words() {{
    case "$1" in
{words}
    esac
}}
_tokenloom_values() {{
    case "$1 $2" in
{values}
    esac
}}
complete -o default -F _tokenloom tokenloom
"""

ZSH = "autoload -U +X bashcompinit && bashcompinit\n"

FISH = "complete -c tokenloom -n '{condition}' {what}\n"


def completion(arguments: argparse.Namespace) -> int:
    """Print the script for a shell: `tokenloom completion`."""
    script = {"bash": bash, "zsh": lambda: ZSH + bash(), "fish": fish}[arguments.shell]()
    if arguments.json:
        script = json.dumps({"shell": arguments.shell, "script": script}, indent=1) + "\n"
    print(script, end="")
    return 0


def known_words(
    top: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[str], dict[str, list[str]]]]:
    """(command, what may follow it, words of its options) of every command, the first one empty.

    >>> found = {path: words for path, words, _ in known_words(parser())}
    >>> "build" in found[()], "--seq-len" in found["pack-plan",]
    (True, True)
    """
    follows: list[str] = []
    values: dict[str, list[str]] = {}
    below: list[tuple[tuple[str, ...], argparse.ArgumentParser]] = []
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            follows += list(action.choices)
            below += [((*path, name), sub) for name, sub in action.choices.items()]
            continue
        follows += [one for one in action.option_strings if one.startswith("--")]
        if action.choices:
            for one in action.option_strings:
                values[one] = list(map(str, action.choices))
    yield path, follows, values
    for deeper, sub in below:
        yield from known_words(sub, deeper)


def bash() -> str:
    """The script for bash."""
    words, values = [], []
    for path, follows, of_options in known_words(parser()):
        name = "".join(f" {one}" for one in path)
        words.append(f'        "{name}") echo "{" ".join(follows)}" ;;')
        for option, allowed in of_options.items():
            values.append(f'        "{name} {option}") echo "{" ".join(allowed)}" ;;')
    return BASH.format(words="\n".join(words), values="\n".join(values))


def fish() -> str:
    """The script for fish."""
    lines = []
    for path, follows, of_options in known_words(parser()):
        seen = " ".join(path)
        condition = f"__fish_seen_subcommand_from {seen}" if path else "__fish_use_subcommand"
        for one in follows:
            if not one.startswith("--"):
                lines.append(FISH.format(condition=condition, what=f"-f -a {one}"))
                continue
            allowed = of_options.get(one)
            more = f" -x -a '{' '.join(allowed)}'" if allowed else ""
            lines.append(FISH.format(condition=condition, what=f"-l {one[2:]}{more}"))
    return "".join(lines)
