"""Site profiles: the shipped ones, the workspace's `site.yaml`, or a file given by its path."""

from pathlib import Path

from benchhouse.documents.problems import guess_hint
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.errors import NotFoundError
from benchhouse.schema.site import Site

SHIPPED = Path(__file__).parent


def load_site(path: Path) -> Site:
    """Return a site profile from its file. Raise every mistake with its place."""
    return validated(load_yaml(path), Site)


def find_site(name: str | None, workspace_file: Path) -> Site:
    """Return a profile by its file or name; without either, the workspace's own, otherwise `local`."""
    if name is None:
        return load_site(workspace_file) if workspace_file.is_file() else Site.model_construct()
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return load_site(Path(name))
    known = shipped()
    if name not in known:
        hint = guess_hint(name, list(known))
        raise NotFoundError(f"there is no site '{name}'", f"{hint}there is: {', '.join(known)}; or name a file")
    return load_site(known[name])


def shipped() -> dict[str, Path]:
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}
