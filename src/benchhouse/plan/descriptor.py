"""Convert a Benchmark AI descriptor into a scenario that is a view of its file, and list what could not be mapped.

Mistakes are reported at their place in the descriptor.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from benchhouse.documents.document import Document, Loc
from benchhouse.documents.problems import Problem, ProblemsError, did_you_mean
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.plan.descriptor_commands import (
    as_label,
    begins_elsewhere,
    escaped,
    script_words,
    simple_words,
    value_of_variable,
)
from benchhouse.plan.descriptor_server import server_recipe, without_effect
from benchhouse.plan.scenario_file import ScenarioFile, read_scenario
from benchhouse.schema.descriptor import SINGLE_RUN, Descriptor, DescriptorMetric, DescriptorSource
from benchhouse.schema.instance_types import InstanceType, find_instance_type, instance_names
from benchhouse.schema.patterns import compiled
from benchhouse.schema.site import Site
from benchhouse.schema.sources import DATA

_SCRIPTS = "scripts"
_SCRIPTS_VARIABLE = "BAI_SCRIPTS_PATH"


@dataclass(frozen=True)
class Converted:
    """A scenario made from a descriptor, and notes on the parts of the descriptor that have no effect."""

    file: ScenarioFile
    notes: list[str]
    scheduling: str
    """The cron line or a keyword such as `@daily`; empty for a single run."""


def convert(document: Document, site: Site, executor: str, environ: Mapping[str, str]) -> Converted:
    """Convert a descriptor; `site` has the sizes of instance types. Raises ProblemsError with every mistake."""
    view = _DescriptorView(document, validated(document, Descriptor), site, executor)
    view.fill()
    if view.problems:
        raise ProblemsError(view.problems)
    text = f"# made of {Path(document.path).name}, a descriptor of Benchmark AI\n{dump_yaml(view.data)}"
    file = read_scenario(document.assemble((), view.data, view.places), environ, made=text)
    scheduling = view.descriptor.info.scheduling
    return Converted(file, view.notes, "" if scheduling == SINGLE_RUN else scheduling)


@dataclass
class _DescriptorView:
    """A scenario under construction: its data, and the place in the descriptor of each part."""

    document: Document
    descriptor: Descriptor
    site: Site
    executor: str
    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Loc, Loc] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    workload: dict[str, Any] = field(default_factory=dict)

    def fill(self) -> None:
        descriptor, info = self.descriptor, self.descriptor.info
        named: Loc = ("info", "labels", "task_name") if info.labels.get("task_name") else ("info", "task_name")
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", descriptor.name).strip("._-")[:100]
        self._put("scenario", name or "benchmark", named)
        self._put("description", escaped(" ".join(info.description.split())), ("info", "description"))
        self._put("labels", self._labels(), ("info", "labels"))
        ranks = descriptor.hardware.distributed is not None or descriptor.hardware.strategy == "horovod"
        self._put("experiment", "training.run" if ranks else "command", ("hardware", "strategy"))
        self._hardware()
        self._environment()
        self._program(ranks)
        self._fetched()
        self._metrics()
        self._ranks() if ranks else self._once()
        self._put("workload", self.workload, ("ml",))
        if descriptor.server:
            self._server()
        self._tell()

    def _labels(self) -> dict[str, str]:
        labels = dict(self.descriptor.info.labels)
        for key in ("framework", "framework_version"):
            value = getattr(self.descriptor.ml, key)
            if value and labels.setdefault(key, label := as_label(value)) != value:
                kept = f"kept as the label '{label}'" if labels[key] == label else f"info.labels says {labels[key]}"
                self.notes.append(f"ml.{key} = {value}: {kept}")
        return {key: escaped(value) for key, value in labels.items()}

    def _put(self, key: str, value: Any, place: Loc) -> None:
        self.data[key] = value
        self.places[key,] = place

    def _refuse(self, loc: Loc, message: str, expected: str = "", suggestion: str = "") -> None:
        self.problems.append(self.document.problem(loc, message, expected, suggestion))

    # hardware

    def _instance(self, loc: Loc) -> InstanceType:
        name = str(self.document.value(loc))
        known = find_instance_type(name, self.site.instance_types)
        if known is None:
            expected = f"a known type, or what it has in the site profile: instance_types: {{{name}: {{cpus: 4}}}}"
            guess = did_you_mean(name, instance_names(self.site.instance_types)) or ""
            self._refuse(loc, f"the instance type '{name}' is not known", expected, guess)
        return known or InstanceType()

    def _hardware(self) -> None:
        descriptor, place = self.descriptor, ("hardware", "instance_type")
        machine = self._instance(place)
        asked = machine.model_dump(exclude_defaults=True) | {"cpus": machine.cpus}
        if descriptor.server:  # it runs next to its client
            other = self._instance(("server", "hardware", "instance_type"))
            for key in ("cpus", "gpus", "memory"):
                if amount := (getattr(machine, key) or 0) + (getattr(other, key) or 0):
                    asked[key] = amount
        if descriptor.hardware.distributed and descriptor.hardware.distributed.num_instances > 1:
            asked["nodes"] = descriptor.hardware.distributed.num_instances
        self._put("resources", asked, place)

    def _environment(self) -> None:
        env = self.descriptor.env
        if env.privileged:
            self._no_privileges(("env", "privileged"))
        if self.executor == "kubernetes":
            settings: dict[str, Any] = {"image": escaped(env.docker_image), "code": "volume"}
            settings |= {"shm": "1GiB"} if env.extended_shm else {}
            self._put("kubernetes", settings, ("env", "docker_image"))
        else:
            self._put("artifacts", {"container": escaped(env.docker_image)}, ("env", "docker_image"))
        variables = {name: value_of_variable(value) for name, value in env.vars.items()}
        if self.descriptor.server:
            ports = self.descriptor.server.env.ports
            variables["INFERENCE_SERVER_HOST"] = "127.0.0.1"
            variables["INFERENCE_SERVER_PORT"] = str(ports[0])
            variables |= {f"INFERENCE_SERVER_PORT_{at}": str(port) for at, port in enumerate(ports[1:], 1)}
        self.workload["environment"] = variables
        self.places |= {("workload", "environment", name): ("env", "vars", name) for name in env.vars}

    def _no_privileges(self, loc: Loc) -> None:
        message = "a privileged container has all rights of its machine's root, so none is started here"
        self._refuse(loc, message, "privileged = false; a device or a capability is for whoever runs the site to grant")

    # what runs

    def _program(self, ranks: bool) -> None:
        ml = self.descriptor.ml
        code, loc = ml.benchmark_code.strip(), ("ml", "benchmark_code")
        if not code:
            message = "there is no benchmark_code, and what an image does by itself is not known outside of it"
            self.problems.append(
                self.document.problem(("ml",), message, "the command: benchmark_code = 'python3 train.py'")
            )
            return
        line = f"{code} {ml.args.strip()}".strip()
        target: dict[str, Any]
        if code.startswith("#!"):
            words = script_words(code, ml.args)
            if words is None:
                self._refuse(loc, f"a script of {code.splitlines()[0]} can't be given in a line", "sh, bash or python")
                return
            target = {"argv": words}
        elif words := simple_words(line):
            target = {"argv": words}
        else:
            line = begins_elsewhere(line)
            target = {"argv": ["/bin/sh", "-c", line]} if ranks else {"shell": line}
        target = {key: self._escaped(value) for key, value in target.items()}
        self._put("target", target, loc)
        self.workload["cwd"] = "."

    def _escaped(self, value: Any) -> Any:
        return [escaped(word) for word in value] if isinstance(value, list) else escaped(value)

    def _metrics(self) -> None:
        metrics, loc = self.descriptor.output.metrics, ("output", "metrics")
        made = [self._metric(metric, (*loc, at)) for at, metric in enumerate(metrics)]
        if made:
            self.workload["metrics"] = made
            self.places["workload", "metrics"] = loc
            for at in range(len(made)):
                self.places["workload", "metrics", at] = (*loc, at)
                for ours, theirs in (("name", "name"), ("unit", "units"), ("pattern", "pattern")):
                    self.places["workload", "metrics", at, ours] = (*loc, at, theirs)

    def _metric(self, metric: DescriptorMetric, loc: Loc) -> dict[str, Any]:
        made: dict[str, Any] = {"name": escaped(metric.name), "unit": escaped(metric.units)}
        if not metric.pattern:
            return made
        try:
            groups = compiled(metric.pattern).groups
        except ValueError as error:
            self._refuse((*loc, "pattern"), str(error), "one with a group around the number")
            return made
        pattern = metric.pattern if groups else f"({metric.pattern})"
        return made | {"pattern": escaped(pattern), "take": "all"}

    def _once(self) -> None:
        metrics = self.descriptor.output.metrics
        self.workload.update(executions=1, warmup=0)
        if any(not metric.pattern for metric in metrics):
            self.workload["json_lines"] = True  # what emit() of that format prints

    def _ranks(self) -> None:
        hardware = self.descriptor.hardware
        machine = self._instance_of_ranks()
        each = hardware.distributed.processes_per_instance if hardware.distributed else 1
        if each == "gpus" and not machine.gpus:
            loc = ("hardware", "distributed", "processes_per_instance")
            self._refuse(loc, f"a process for each GPU, and {hardware.instance_type} has none", "a number")
        self.workload["ranks_per_node"] = machine.gpus or 1 if each == "gpus" else each
        numbers = {"RANK": "rank", "SIZE": "world", "LOCAL_RANK": "local_rank"}
        self.workload["rank_environment"] = {f"OMPI_COMM_WORLD_{name}": f"{{{of}}}" for name, of in numbers.items()}
        if hardware.strategy == "horovod":
            self.notes.append(
                "strategy horovod: ranks are processes with the variables of torch and Open MPI, not children of "
                "mpirun; a program that calls hvd.init() is started by: workload: {launcher: srun}, on Slurm"
            )

    def _instance_of_ranks(self) -> InstanceType:
        return find_instance_type(self.descriptor.hardware.instance_type, self.site.instance_types) or InstanceType()

    # data

    def _fetched(self) -> None:
        """Add the data sources, and rewrite the program's words that name their paths."""
        sources = list[tuple[DescriptorSource, Loc]]()
        sources += [(source, ("data", "sources", at)) for at, source in enumerate(self.descriptor.data.sources)]
        made = [self._source(source, source.path) for source, _ in sources]
        if script := self.descriptor.ml.script:
            made.append({"file": escaped(script.script), "path": _SCRIPTS, "unpack": True})
            self.workload["environment"][_SCRIPTS_VARIABLE] = f"{{{DATA}}}/{_SCRIPTS}"
            sources.append((DescriptorSource(src=script.script, path=_SCRIPTS), ("ml", "script", "script")))
        if not made:
            return
        self.workload["data"] = made
        self.places |= {("workload", "data", at): loc for at, (_, loc) in enumerate(sources)}
        self.places["workload", "data"] = ("data", "sources")
        for source, loc in sources[: len(self.descriptor.data.sources)]:
            if not self._rewrite(source.path):
                self.notes.append(
                    f"{'.'.join(map(str, loc))}: no word of the program names {source.path}; it is fetched to "
                    f"{{data}}/{_below(source.path)}"
                )

    def _source(self, source: DescriptorSource, path: str) -> dict[str, Any]:
        parts = urlsplit(source.src)
        made: dict[str, Any] = {"path": _below(path)}
        if parts.scheme in ("", "file"):
            made["file"] = escaped(unquote(parts.path) if parts.scheme else source.src)
        else:
            made["url"] = escaped(source.src)
        name = PurePosixPath(parts.path).name
        if name and PurePosixPath(path).name != name and (PurePosixPath(name).suffix or path.endswith("/")):
            made["path"] = str(PurePosixPath(made["path"]) / name)  # path is the folder that contains it
        return made | {key: value.lower() for key in ("md5", "sha256") if (value := getattr(source, key))}

    def _rewrite(self, path: str) -> bool:
        """Rewrite words that name the path or one of its parent folders to {data}; return whether any word does."""
        changed = False
        place = PurePosixPath(path)
        for folder in (place, *place.parents):
            text = str(folder)
            if text in (".", "/", "~") or (folder != place and len(folder.parts) < 3):
                continue
            pattern = re.compile(rf"(?<![\w.}}/~-]){re.escape(text)}(?=[/\s\"'=:,;)]|$)")
            below = f"{{{DATA}}}/{_below(text)}"

            def replaced(value: str, pattern: re.Pattern[str] = pattern, below: str = below) -> str:
                return pattern.sub(lambda match: below, value)

            for holder in (self.data.get("target", {}), self.workload["environment"]):
                for key, value in holder.items():
                    new = [replaced(word) for word in value] if isinstance(value, list) else replaced(value)
                    changed |= new != value or f"{{{DATA}}}/{_below(text)}" in str(value)
                    holder[key] = new
        return changed

    # the server

    def _server(self) -> None:
        assert self.descriptor.server
        server, loc = self.descriptor.server, ("server", "env")
        if server.env.privileged:
            self._no_privileges((*loc, "privileged"))
        recipe, lacking = server_recipe(server, self.data["scenario"])
        for key, message, expected in lacking:
            self._refuse((*loc, key) if key else loc, message, expected)
        if recipe:
            models = [self._source(source, source.path) for source in server.models]
            self._put("services", {"server": {"recipe": recipe}}, loc)
            if models:
                self.notes.append("server.models: not fetched: say in start_command where they lie on the machine")
            self.notes += without_effect(server)

    def _tell(self) -> None:
        """Add notes on the settings that have no effect."""
        descriptor, hardware = self.descriptor, self.descriptor.hardware
        if descriptor.info.scheduling != SINGLE_RUN:
            said = f'scheduling = "{descriptor.info.scheduling}": this is one run; to keep the schedule:'
            self.notes.append(f"{said} bench schedule add {self.document.path}")
        if descriptor.info.execution_engine not in ("default", "kubernetes"):
            engine = descriptor.info.execution_engine
            self.notes.append(f"execution_engine = {engine}: it runs where --executor or the site says")
        zones = [name for name in ("availability_zone", "aws_zone_id") if getattr(hardware, name)]
        self.notes += [f"hardware.{name}: machines are chosen by the executor" for name in zones]
        if descriptor.custom_params:
            self.notes.append(f"custom_params: nothing reads {', '.join(descriptor.custom_params)}")
        names = [descriptor.data.id, *(source.id for source in descriptor.data.sources)]
        if any(names):
            told = ", ".join(filter(None, names))
            self.notes.append(f"data: id = {told}: sources are known by their address")


def _below(path: str) -> str:
    """Return the path below {data} that replaces a path in the container."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "~", "..")]
    return "/".join(parts) or "data"
