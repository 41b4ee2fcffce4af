"""`ws.infra`: clusters as plain files, with their costs. Nothing is started unless that is requested."""

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack

from pydantic import ValidationError

from benchhouse.api.verb_group import VerbGroup
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.evidence.writing import now
from benchhouse.schema.errors import BenchError
from benchhouse.schema.infra import InfraManifest, InfraRequest, PriceTable, Provider, Stage
from benchhouse.sites.infra import programs, providers
from benchhouse.sites.infra.costs import Cost, estimate
from benchhouse.sites.infra.folder import MANIFEST, InfraFile, InfraFolder

_PRICES = Path(providers.__file__).parent / "prices.yaml"


class InfraKeywords(TypedDict, total=False):
    """The properties of a cluster. For kind and Slurm, only `nodes` and `gpu_nodes` apply."""

    region: str | None
    """AWS region: us-east-1."""
    nodes: str | int | None
    """Nodes without GPUs: `2`, or `1..4` if an autoscaler adds and removes them."""
    gpu_nodes: str | int | None
    """Nodes with GPUs, none by default."""
    instance_type: str | None
    """m6i.2xlarge by default."""
    gpu_instance_type: str | None
    """g6.xlarge by default."""


@dataclass(frozen=True)
class Infra:
    """An infrastructure, as it is planned or as it exists in its folder."""

    request: InfraRequest
    folder: Path
    stage: Stage | None
    """How far it got; None if nothing is written yet."""
    files: list[InfraFile]
    cost: Cost
    create: list[tuple[str, ...]]
    """The commands that create it, in order."""
    destroy: list[tuple[str, ...]]
    """The commands that remove it, in order."""

    @property
    def may_run(self) -> bool:
        """Whether there may be something to remove: it was applied from here, or the programs left traces."""
        return self.stage in ("applying", "applied", "destroying") or (
            self.stage == "written" and bool(self.named("made"))
        )

    def named(self, *states: str) -> list[str]:
        """Return the names of the files in these states."""
        return [file.name for file in self.files if file.state in states]


@dataclass(frozen=True)
class InfraPlan(Infra):
    """The files that `create` would write, and the commands that it would run with `apply`."""

    manifest: InfraManifest
    texts: dict[str, str]
    """The texts of the files, by file name."""


class Infrastructures(VerbGroup):
    """Clusters on AWS, in kind, or with Slurm, as files that an engineer can read and own."""

    def plan(
        self,
        provider: Provider,
        name: str,
        *,
        output: str | os.PathLike[str] | None = None,
        prices: str | os.PathLike[str] | None = None,
        **settings: Unpack[InfraKeywords],
    ) -> InfraPlan:
        """Return what would be written into `output`, by default `infra/NAME` of the workspace. Nothing is changed.

        `prices` is a file of prices for the estimate, instead of the file that comes with benchhouse.
        """
        _request(provider, name, settings)  # raises if the name can't name a folder
        path = self._path(output or f"infra/{name}")
        folder, suffix = InfraFolder(path), secrets.token_hex(4)
        before = folder.manifest()
        if before is None and folder.entries():
            raise BenchError(f"{path} has other files in it", "give an empty or a new folder: --output DIR")
        if before and (before.request.provider, before.request.name) != (provider, name):
            raise BenchError(
                f"{path} holds {before.request.name} ({before.request.provider})", "give another folder: --output DIR"
            )
        if before and before.stage in ("destroying", "destroyed"):
            raise BenchError(f"{path} is being destroyed", f"finish that first:  bench infra destroy {path} --apply")
        request = _request(provider, name, settings, before)
        manifest = before or InfraManifest(request=request, created=now(), suffix=suffix, files={})
        manifest = manifest.model_copy(update={"request": request})
        texts = providers.render(manifest, path, self._folder.root)
        known = {file.name: file for file in folder.states(manifest)} if before else {}
        table = known.get("prices.yaml", InfraFile("prices.yaml", "planned"))
        source = Path(prices) if prices else path / table.name if table.state in ("written", "edited") else _PRICES
        if provider == "aws":  # an edited file is read, and kept as edited
            texts[table.name] = _text(_PRICES if table.state == "edited" else source)
        files = [known.get(name, InfraFile(name, "planned")) for name in texts]
        drawn = _drawn(manifest, path, files, _prices(source))
        return InfraPlan(**vars(drawn) | {"stage": before.stage if before else None}, manifest=manifest, texts=texts)

    def create(self, plan: InfraPlan, *, apply: bool = False, note: Callable[[str], None] = lambda text: None) -> Infra:
        """Write the files of a plan and, with `apply`, run its commands. Repeat the call to finish an interrupted one.

        A file that was edited is left as it is, and then nothing is applied. `note` is called with each command.
        """
        folder = InfraFolder(plan.folder)
        commands = programs.resolved(providers.steps(plan.request, plan.folder).create) if apply else []
        manifest = folder.write(plan.manifest, plan.texts)
        if apply:
            self._only_ours(folder, manifest, plan.create)
            manifest = folder.advance(manifest, "applying")
            programs.run(commands, note)
            folder.advance(manifest, "applied")
        return self.show(plan.folder)

    def show(self, folder: str | os.PathLike[str] | None = None) -> Infra:
        """Return the infrastructure in a folder, by default the only one below `infra/` of the workspace."""
        path = self._path(folder or self._only())
        manifest = InfraFolder(path).manifest()
        if manifest is None:
            raise BenchError(
                f"nothing in {path} was written by `bench infra`",
                f"{MANIFEST} is missing there; see what is known:  bench infra show",
            )
        return _drawn(manifest, path, InfraFolder(path).states(manifest), _prices(path / "prices.yaml"))

    def folders(self) -> list[Path]:
        """Return the folders of infrastructures below `infra/` of the workspace."""
        return sorted(path.parent for path in (self._folder.root / "infra").glob(f"*/{MANIFEST}"))

    def destroy(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        apply: bool = False,
        note: Callable[[str], None] = lambda text: None,
    ) -> Infra:
        """With `apply`, run the commands that remove an infrastructure if it was applied, then remove the written
        files.

        Returns what was there; without `apply`, does nothing else. Edited files and files that others wrote are kept.
        """
        infra = self.show(folder)
        if not apply:
            return infra
        place = InfraFolder(infra.folder)
        manifest = place.manifest()
        assert manifest is not None
        if infra.may_run:
            self._only_ours(place, manifest, infra.destroy)
            commands = programs.resolved(providers.steps(infra.request, infra.folder).destroy)
            manifest = place.advance(manifest, "destroying")
            programs.run(commands, note)
        manifest = place.advance(manifest, "destroyed")
        left = place.remove(manifest)
        return replace(infra, stage=None, files=[file for file in infra.files if file.name in left])

    def _path(self, folder: str | os.PathLike[str]) -> Path:
        return Path(os.path.abspath(self._folder.root / folder))  # noqa: PTH100 - of a folder that need not exist

    def _only(self) -> Path:
        folders = self.folders()
        if len(folders) == 1:
            return folders[0]
        if not folders:
            raise BenchError("there is no infrastructure in infra/", "bench infra create --provider kind --name lab")
        raise BenchError("there are several", f"name one: {', '.join(f'infra/{path.name}' for path in folders)}")

    @staticmethod
    def _only_ours(folder: InfraFolder, manifest: InfraManifest, commands: list[tuple[str, ...]]) -> None:
        """Raise BenchError if a file to apply or destroy was edited or is not ours: its owner runs the commands."""
        read_too = providers.steps(manifest.request, folder.path).read_too
        for file in folder.states(manifest):
            foreign = file.state == "foreign" and file.name.endswith(read_too)
            changed = file.state in ("edited", "missing", "outdated") and file.name not in providers.NOT_APPLIED
            if foreign or changed:
                why = "was not written by `bench infra`" if foreign else f"is {file.state}"
                raise BenchError(
                    f"{folder.path / file.name} {why}: nothing was run",
                    "remove it, and create writes its own; or it is yours now, then run:  "
                    + "; ".join(" ".join(command) for command in commands),
                )


def _request(provider: str, name: str, settings: InfraKeywords, before: InfraManifest | None = None) -> InfraRequest:
    """Return the requested properties; those that are not given stay as in `before`."""
    given = {key: value for key, value in settings.items() if value is not None}
    if provider != "aws" and (wrong := given.keys() - {"nodes", "gpu_nodes"}):
        option = sorted(wrong)[0].replace("_", "-")
        raise BenchError(f"--{option} is of aws: {provider} runs on this machine", "leave it out")
    last = before.request.model_dump() if before else {} if provider == "aws" else {"nodes": 2}
    asked = {**last, "provider": provider, "name": name, **given}
    try:
        return InfraRequest.model_validate(asked)
    except ValidationError as error:
        raise BenchError(*_words(error, asked)) from error


def _words(error: ValidationError, given: dict[str, object]) -> tuple[str, str]:
    first = error.errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    message = first["msg"].removeprefix("Value error, ")
    if not field:
        return message, "see: bench infra create --help"
    about = InfraRequest.model_fields[field].description or message if first["type"] != "value_error" else message
    return f"--{field.replace('_', '-')} {given.get(field)!r} can't be used: {about}", "see: bench infra create --help"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BenchError(f"can't read the prices of {path}: {error}") from error


def _prices(path: Path) -> PriceTable:
    return validated(load_yaml(path if path.is_file() else _PRICES), PriceTable)


def _drawn(manifest: InfraManifest, path: Path, files: list[InfraFile], prices: PriceTable) -> Infra:
    steps = providers.steps(manifest.request, path)
    create, destroy = programs.shown(steps.create), programs.shown(steps.destroy)
    return Infra(manifest.request, path, manifest.stage, files, estimate(manifest.request, prices), create, destroy)
