"""Let programs that were built for a newer glibc load on the one that is here: patch_glibc.py FILE...

Since C23, headers map strtol and its kin to `__isoc23_strtol`, which glibc has from 2.38 on. It differs from the plain
one in that it also reads 0b101; what is patched here loses that, which is good enough for tests.
Where such names are all that a file wants of a newer
glibc, each is pointed at the plain function (the tail of its own name, so no text is added) without a version, and the
need for the newer version becomes a second need for 2.34. Anything else that is too new is refused, and the file stays
as it was.
"""

import platform
import struct
import sys
from pathlib import Path

_PREFIX = "__isoc23_"
_DYNSYM, _VERNEED, _VERSYM = 11, 0x6FFFFFFE, 0x6FFFFFFF
_BASE = "GLIBC_2.34"
_ANY_VERSION = 1


def main(names: list[str]) -> int:
    here = tuple(int(part) for part in platform.libc_ver()[1].split("."))
    for name in names:
        try:
            changed = patch(Path(name), here)
        except ValueError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        print(f"{name}: {', '.join(changed) or 'nothing to change'}")
    return 0


def patch(path: Path, here: tuple[int, ...]) -> list[str]:
    """The names that were pointed elsewhere. Raises ValueError where that does not suffice."""
    content = bytearray(path.read_bytes())
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    sections = _sections(content)
    by_kind = {section[1]: section for section in sections}
    if not {_DYNSYM, _VERNEED, _VERSYM} <= by_kind.keys():
        return []  # linked statically
    symbols, texts = by_kind[_DYNSYM], sections[by_kind[_DYNSYM][6]][4]

    def text(offset: int) -> str:
        return content[texts + offset : content.index(0, texts + offset)].decode()

    needs = _needs(content, by_kind[_VERNEED])
    too_new = {index for index, at in needs.items() if _newer(text(_name_of(content, at)), here)}
    if not too_new:
        return []
    changed, left = [], []
    for index in range(symbols[5] // 24):
        entry, version = symbols[4] + 24 * index, by_kind[_VERSYM][4] + 2 * index
        if struct.unpack_from("<H", content, version)[0] & 0x7FFF in too_new:
            (offset,) = struct.unpack_from("<I", content, entry)
            name = text(offset)
            if not name.startswith(_PREFIX):
                left.append(name)
                continue
            struct.pack_into("<I", content, entry, offset + len(_PREFIX))
            struct.pack_into("<H", content, version, _ANY_VERSION)
            changed.append(name)
    base = next((at for at in needs.values() if text(_name_of(content, at)) == _BASE), None)
    if left or base is None:
        raise ValueError(f"it needs more of a newer glibc than can be replaced: {', '.join(left) or _BASE}")
    for index in too_new:  # hash and name; flags, index and the way to the next one stay
        content[needs[index] : needs[index] + 4] = content[base : base + 4]
        content[needs[index] + 8 : needs[index] + 12] = content[base + 8 : base + 12]
    path.write_bytes(content)
    return changed


def _sections(content: bytearray) -> list[tuple[int, ...]]:
    (start,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    return [struct.unpack_from("<IIQQQQIIQQ", content, start + size * index) for index in range(count)]


def _needs(content: bytearray, section: tuple[int, ...]) -> dict[int, int]:
    """Where the record of each needed version begins, by the number that symbols refer to it by."""
    found, at = {}, section[4]
    for _ in range(section[7]):
        _, count, _, first, following = struct.unpack_from("<HHIII", content, at)
        record = at + first
        for _ in range(count):
            _, _, index, _, further = struct.unpack_from("<IHHII", content, record)
            found[index] = record
            record += further
        at += following
    return found


def _name_of(content: bytearray, record: int) -> int:
    (offset,) = struct.unpack_from("<I", content, record + 8)
    return int(offset)


def _newer(version: str, here: tuple[int, ...]) -> bool:
    family, _, numbers = version.partition("_")
    return family == "GLIBC" and numbers[:1].isdigit() and tuple(int(part) for part in numbers.split(".")) > here


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
