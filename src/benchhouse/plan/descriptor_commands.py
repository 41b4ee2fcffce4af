"""The commands of a descriptor as words, or as a line for the shell."""

import re
import shlex

_SHELLS_OWN = re.compile(r"[$`|&;<>(){}*?\[\]#~!\n\\]")
_REFERENCE = re.compile(r"\$\{?[A-Za-z_]\w*\}?")
_KUBERNETES = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_INTERPRETERS = re.compile(r"(ba|da|z|k)?sh|python[\d.]*")


def escaped(text: str) -> str:
    """What a scenario reads as this very text, whatever dollars are in it."""
    return text.replace("$", "$$")


def as_label(text: str) -> str:
    """A text as the value of a label: at most 63 letters, digits, `-`, `_` and `.`, which begins and ends with one of
    the first two."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63].strip("._-")


def value_of_variable(value: str) -> str:
    """A variable's value: `$NAME` alone stays a reference, as that is how a secret is given."""
    return value if _REFERENCE.fullmatch(value) else escaped(value)


def simple_words(line: str) -> list[str] | None:
    """The words of a command that needs no shell; None for one that does."""
    if _SHELLS_OWN.search(line):
        return None
    try:
        words = shlex.split(line)
    except ValueError:  # a quote that is not closed: the shell's to tell
        return None
    return words if words and "=" not in words[0] else None


def begins_elsewhere(line: str) -> str:
    """`$(NAME)` is how Kubernetes writes a variable; to a shell it would be a command."""
    return _KUBERNETES.sub(r"${\1}", line)


def script_words(script: str, args: str) -> list[str] | None:
    """The command that runs a script with a first line `#!`; None where its interpreter takes no script as a word."""
    first, _, rest = script.partition("\n")
    interpreter = first.removeprefix("#!").split()
    named = [word for word in interpreter if not word.startswith("-")]
    if not named or not _INTERPRETERS.fullmatch(named[-1].rpartition("/")[2]):
        return None
    python = "python" in named[-1]
    return [*interpreter, "-c", rest, *([] if python else ["benchmark"]), *shlex.split(args)]
