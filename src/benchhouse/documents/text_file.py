"""Read the text of a file that a user wrote; content that is not text is reported with its place."""

import re
from pathlib import Path

from benchhouse.documents.problems import Problem, ProblemsError, did_you_mean
from benchhouse.schema.errors import BenchError
from benchhouse.schema.quoting import quote

MAX_BYTES = 4 * 2**20


def read_text(path: Path, language: str) -> str:
    """Return the text of a UTF-8 file; `language` names its format in messages. Raise BenchError if unreadable."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
            size = max(len(raw), path.stat().st_size)
    except FileNotFoundError:
        raise BenchError(f"no such file: {path}", _near(path)) from None
    except IsADirectoryError:
        raise BenchError(f"{path} is a directory, expected a {language} file", "Name a file in it.") from None
    except PermissionError:
        raise BenchError(f"no permission to read {path}", f"Check its permissions: ls -l {path}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise BenchError(f"{quote(str(path))} can't be read: {error}", "Check the path.") from None
    if size > MAX_BYTES:
        raise too_large(size, str(path), language)
    return _decode(raw, str(path), language)


def too_large(size: int, path: str, language: str) -> ProblemsError:
    message = f"the file is {size / 2**20:.1f} MiB, too large to be read as {language}"
    return ProblemsError([Problem(message, path, None, None, "", f"at most {MAX_BYTES // 2**20} MiB")])


def _near(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"The directory {path.parent} does not exist either." if not path.parent.is_dir() else ""
    meant = did_you_mean(path.name, names)
    return f"Did you mean {path.parent / meant}?" if meant else f"Looked in {path.parent.absolute()}."


def _decode(raw: bytes, path: str, language: str) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ProblemsError([Problem("the file is UTF-16 text", path, 1, 1, "", "UTF-8; save it in that encoding")])
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        at = error.start
        line_start = max(raw.rfind(b"\n", 0, at), raw.rfind(b"\r", 0, at)) + 1
        before = raw[:line_start].decode().removeprefix("\ufeff")
        line = len(re.findall(r"\r\n?|\n", before)) + 1
        column = len(raw[line_start:at].decode().removeprefix("\ufeff")) + 1
        source = re.split(rb"[\r\n]", raw[line_start : at + 200])[0].decode(errors="replace").removeprefix("\ufeff")
        binary = " (it looks like a binary file)" if b"\0" in raw else ""
        message = f"byte 0x{raw[at]:02x} at offset {at} is not UTF-8 text{binary}"
        raise ProblemsError([Problem(message, path, line, column, source, f"a {language} file in UTF-8")]) from None
