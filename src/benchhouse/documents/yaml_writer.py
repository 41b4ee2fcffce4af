"""Write YAML that `parse_yaml` reads back as the same data."""

from typing import Any

import yaml

from benchhouse.documents.yaml_reader import ScalarRefused, resolve_plain


class _ScenarioDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Write text, in quotes if it would be read as a number, a boolean, or null."""
    try:
        plain = bool(value) and resolve_plain(value) is value
    except ScalarRefused:
        plain = False
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else "'")


_ScenarioDumper.add_representer(str, _text)


def dump_yaml(data: Any) -> str:
    dumped: str = yaml.dump(data, Dumper=_ScenarioDumper, sort_keys=False, allow_unicode=True, width=110)
    return dumped
