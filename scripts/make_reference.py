"""Make the reference pages of docs/reference from the code: commands, scenario keys, experiments, tables, Python API.

python scripts/make_reference.py            write them
python scripts/make_reference.py --check    exit 1 and name the pages that are out of date
"""

import os
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import python_reference

from benchhouse.api.workspace import Workspace
from benchhouse.cli import bench
from benchhouse.schema.logs import LogSettings
from benchhouse.schema.resources import Budget, Limits, Resources, Retries, RuntimeSettings
from benchhouse.schema.scenario import AxisBlock, Benchmark, Defined, Range, Scenario
from benchhouse.schema.site import Folders, Partition, Quality, Quota, Site, SiteNetwork, SlurmSite
from benchhouse.schema.telemetry import MonitorSettings, Scrape
from benchhouse.schema.topology import Cluster

if TYPE_CHECKING:
    from benchhouse.api.catalog import InputKey

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
_MADE = "<!-- Made by scripts/make_reference.py (make reference); edit the code, not this page. -->"
_CLI = (
    "Data goes to standard output, progress and hints to standard error. `RUN` is a run id or a unique "
    "beginning of it, `@last`, `@last-1`, or a scenario's name (its last run). Exit codes: [Exit "
    "codes](exit-codes.md)."
)
_SCENARIO = (
    "YAML. Unknown and duplicate keys are refused. `$NAME` and `${NAME}` are environment variables, expanded "
    "when the file is planned; `$$` is a plain `$`. The same as JSON Schema: `bench schema scenario`. How to "
    "write one: [Write a scenario](../how-to/write-a-scenario.md)."
)
_SITE = (
    "YAML: `site.yaml` of the workspace, a file by `--site FILE`, or a shipped one by `--site NAME`. Unknown keys are "
    "refused. The same as JSON Schema: `bench schema site`. How to use one: [Use a site "
    "profile](../how-to/use-a-site-profile.md)."
)
_BENCHMARK = (
    "A file in the workspace's `benchmarks/` folder, or in a package that names its module under the entry "
    "point group `benchhouse.benchmarks`. It has these keys, and `experiment` is required:"
)
_EXPERIMENTS = (
    "What comes with Benchhouse. `bench list experiments` lists what is installed, `bench show NAME` describes "
    "one. A quantity may be written with a unit: `10ms`, `2m`, `64MiB`, `1GB`."
)


def cli_page() -> str:
    lines = [
        "# Command line",
        _MADE,
        _CLI,
    ]
    root = click.Context(bench, info_name="bench")
    for path, command in _commands(bench, root, ("bench",)):
        context = click.Context(
            command, info_name=" ".join(path[1:]) or "bench", parent=None if len(path) == 1 else root
        )
        lines.append(f"## `{' '.join(path)}`")
        lines.append("```text\n" + _help(command, context) + "\n```")
    return "\n\n".join(lines) + "\n"


def _commands(
    command: click.Command, context: click.Context, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _commands(inner, context, (*path, name))


def _help(command: click.Command, context: click.Context) -> str:
    formatter = click.HelpFormatter(width=100, max_width=100)
    command.format_help(context, formatter)
    return "\n".join(line.rstrip() for line in formatter.getvalue().rstrip().splitlines())


def scenario_page() -> str:
    lines = [
        "# Scenario file",
        _MADE,
        _SCENARIO,
        "## Scenario",
        _keys(Scenario),
        "## `axes`: a block",
        "Blocks multiply. Each has exactly one of:",
        _keys(AxisBlock),
        "## A range, in place of a list of values",
        "`from`, `to`, and exactly one of `step`, `factor`, `count`.",
        _keys(Range),
        "## `resources`",
        "`cpus_per_task` is accepted for `cpus`, and `mem_gb: 32` for `memory: 32GB`.",
        _keys(Resources),
        "## `limits`",
        _keys(Limits),
        "## `budget`",
        _keys(Budget),
        "## `retries`",
        _keys(Retries),
        "## `runtime`",
        _keys(RuntimeSettings),
        "## `logs`",
        _keys(LogSettings),
        "## `monitors`",
        "What it means: [Monitor a run](../how-to/monitor-a-run.md).",
        _keys(MonitorSettings),
        "## `monitors.prometheus`: an endpoint",
        _keys(Scrape),
        "## Registered benchmark",
        _BENCHMARK,
        _keys(Benchmark, only={"benchmark", *Defined.model_fields}),
    ]
    return "\n\n".join(lines) + "\n"


def site_page() -> str:
    lines = [
        "# Site profile",
        _MADE,
        _SITE,
        _keys(Site),
        "## `slurm`",
        _keys(SlurmSite),
        "## `slurm.partitions`: one of them",
        _keys(Partition),
        "## `slurm.qualities`: one of them",
        _keys(Quality),
        "## `folders`",
        _keys(Folders),
        "## `quotas`: of one folder",
        _keys(Quota),
        "## `network`",
        _keys(SiteNetwork),
        "## `cluster`",
        "What the tables say of the place: `cluster_region_dim`.",
        _keys(Cluster),
    ]
    return "\n\n".join(lines) + "\n"


def _keys(model: Any, only: set[str] | None = None) -> str:
    schema = model.model_json_schema(by_alias=True)
    required = set(schema.get("required", []))
    rows = []
    for name, item in schema["properties"].items():
        if only is not None and name not in only:
            continue
        default = "**required**" if name in required else f"`{_plain(item['default'])}`" if "default" in item else ""
        rows.append((f"`{name}`", _type(item), default, item.get("description", "")))
    return _table(("key", "type", "default", "meaning"), rows)


def _type(item: dict[str, Any]) -> str:
    if "$ref" in item:
        return str(item["$ref"]).rpartition("/")[2]
    if "anyOf" in item:
        kinds = [_type(part) for part in item["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in item:
        return " or ".join(f"`{value}`" for value in item["enum"])
    if "const" in item:
        return f"`{item['const']}`"
    kind = {"object": "mapping", "array": "list", "string": "text", "boolean": "true/false"}
    return kind.get(item.get("type", ""), str(item.get("type", "any")))


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def experiments_page() -> str:
    lines = [
        "# Built-in experiments",
        _MADE,
        _EXPERIMENTS,
    ]
    catalog = Workspace().catalog
    for item in catalog.experiments(installed_only=True):
        if item.distribution != "benchhouse":
            continue
        details = catalog.show(item.name, item.version)
        lines += [f"## `{item.name}` {item.version}", details.description]
        for part, inputs in (("target", details.target), ("workload", details.workload)):
            rows = [
                (f"`{field.name}`", field.type.replace("|", "or"), _default(field), field.description)
                for field in inputs
            ]
            lines += [f"### `{part}` of `{item.name}`", _table(("input", "type", "default", "meaning"), rows)]
        rows = [(f"`{metric.name}`", metric.unit, metric.direction or "", metric.formula) for metric in details.metrics]
        lines += [f"### Metrics of `{item.name}`", _table(("metric", "unit", "better", "formula"), rows)]
    return "\n\n".join(lines) + "\n"


def _default(field: "InputKey") -> str:
    if field.required:
        return "**required**"
    return f"`{_plain(field.default)}`" if field.default not in ("", [], {}) else ""


def tables_page() -> str:
    lines = [
        "# Tables of the warehouse",
        _MADE,
        "What `bench query` can ask; `bench warehouse schema --json` prints the same for programs.",
    ]
    for table in Workspace().warehouse.schema():
        rows = [(f"`{item.name}`", item.type, item.meaning) for item in table.columns]
        source = [f"Read from `{table.source}` of the workspace as it is."] if table.source else []
        lines += [f"## `{table.name}`", table.description, *source, _table(("column", "type", "meaning"), rows)]
    return "\n\n".join(lines) + "\n"


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(head + ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


PAGES = {
    "cli.md": cli_page,
    "scenario.md": scenario_page,
    "site.md": site_page,
    "experiments.md": experiments_page,
    "tables.md": tables_page,
    "python.md": lambda: python_reference.page(_MADE),
}


def installed_as_written() -> bool:
    """Else experiments and drivers that were added since the installation would be missing from the pages."""
    project = tomllib.loads((FOLDER.parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    written = {(group, *item) for group, items in project["entry-points"].items() for item in items.items()}
    installed = {(item.group, item.name, item.value) for item in distribution("benchhouse").entry_points}
    return written <= installed


def main() -> int:
    for name in [name for name in os.environ if name.startswith("BENCH_")]:
        del os.environ[name]  # an option's default shown in help must not depend on who makes the page
    if not installed_as_written():
        print("pyproject.toml has other entry points than the installed package: make venv", file=sys.stderr)
        return 1
    stale = []
    for name, make in PAGES.items():
        path, text = FOLDER / name, make()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
            print(path)
    if stale and "--check" in sys.argv:
        print(f"out of date: {', '.join(stale)}; run: make reference", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
