"""Convert the commands of a descriptor to words, or to a line for the shell."""

import re
import shlex

_SHELLS_OWN = re.compile(r"[$`|&;<>(){}*?\[\]#~!\n\\]")
_REFERENCE = re.compile(r"\$\{?[A-Za-z_]\w*\}?")
_KUBERNETES = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_INTERPRETERS = re.compile(r"(ba|da|z|k)?sh|python[\d.]*")


def escaped(text: str) -> str:
    """Return text that a scenario reads as this literal text, with every dollar sign escaped."""
    return text.replace("$", "$$")


def as_label(text: str) -> str:
    """Return a text as a valid label: at most 63 letters, digits, `-`, `_`, and `.`, starting and ending with a letter
    or digit.
    """
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63].strip("._-")


def value_of_variable(value: str) -> str:
    """Return a variable's value: `$NAME` alone stays a reference, because secrets are given that way."""
    return value if _REFERENCE.fullmatch(value) else escaped(value)


def simple_words(line: str) -> list[str] | None:
    """Return the words of a command that needs no shell; None if it needs one."""
    if _SHELLS_OWN.search(line):
        return None
    try:
        words = shlex.split(line)
    except ValueError:  # an unclosed quote: left to the shell to report
        return None
    return words if words and "=" not in words[0] else None


def begins_elsewhere(line: str) -> str:
    """Rewrite `$(NAME)`, a variable in Kubernetes but a command in a shell, as `${NAME}`."""
    return _KUBERNETES.sub(r"${\1}", line)


def script_words(script: str, args: str) -> list[str] | None:
    """Return the command that runs a script with a `#!` line; None if its interpreter is not a shell or Python."""
    first, _, rest = script.partition("\n")
    interpreter = first.removeprefix("#!").split()
    named = [word for word in interpreter if not word.startswith("-")]
    if not named or not _INTERPRETERS.fullmatch(named[-1].rpartition("/")[2]):
        return None
    python = "python" in named[-1]
    return [*interpreter, "-c", rest, *([] if python else ["benchmark"]), *shlex.split(args)]
