"""Write manifests as YAML that all readers parse alike, including kubectl's, which does not read `yes` or `1e3` as
text.
"""

import re
from collections.abc import Sequence
from typing import Any

import yaml

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9./-]*")
_NO_TEXT = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


class _ManifestDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    is_plain = _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if is_plain else '"')


_ManifestDumper.add_representer(str, _text)


def as_yaml(manifests: Sequence[Any]) -> str:
    return yaml.dump_all(manifests, Dumper=_ManifestDumper, sort_keys=False, width=1 << 20, explicit_start=True)
