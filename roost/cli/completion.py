"""`roost completion`: a script that lets a shell complete commands and options, written from the parser."""

import argparse
from collections.abc import Iterator

_BASH = """\
# roost completion bash: put it into your .bashrc as  source <(roost completion bash)
_roost() {{
    local word command="" words=""
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        [[ $word == -* ]] || command+="$word "
    done
    case "$command" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
    [[ ${{#COMPREPLY[@]}} -gt 0 ]] || COMPREPLY=($(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -F _roost roost
"""
_ZSH = "#compdef roost\nautoload -Uz bashcompinit && bashcompinit\n"
SHELLS = ("bash", "zsh")


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """What the shell is to source."""
    cases = "\n".join(f'        "{path}"*) words="{words}" ;;' for path, words in _choices(parser))
    text = _BASH.format(cases=cases)
    return text if shell == "bash" else _ZSH + text


def _choices(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, str]]:
    """What may follow the words of each command, the longest first."""
    words = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from _choices(inner, f"{path}{name} ")
            words = [*action.choices, *words]
        elif action.choices:
            words += [str(choice) for choice in action.choices]
    yield path, " ".join(words)
