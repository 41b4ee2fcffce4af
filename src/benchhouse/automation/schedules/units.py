"""The configuration by which a machine runs schedules: systemd units, a crontab line, or lines of Slurm's scrontab."""

import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchhouse.evidence.writing import write_text
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.scenario import Scenario

Keeper = Literal["service", "timer", "crontab"]
_MARK = "# benchhouse agent of "


@dataclass(frozen=True)
class Unit:
    """One file that a keeper reads."""

    path: str
    """The path of the file; empty for the user's crontab."""
    text: str
    then: str = ""
    """The command that activates it."""


def units(keeper: Keeper, root: Path) -> list[Unit]:
    """Return the units for the agent of one workspace: a permanent service, or a start every minute by systemd or
    cron."""
    if not str(root).isprintable():
        raise BenchError(f"the path of the workspace can't stand in a unit: {str(root)!r}", "rename it")
    command = [sys.executable, "-m", "benchhouse", "-C", str(root), "agent"]
    if keeper == "crontab":
        line = f"* * * * * {shlex.join([*command, '--once'])}".replace("%", "\\%")  # to cron a % is the end of a line
        return [Unit("", f"{_MARK}{root}\n{line} >/dev/null 2>&1\n")]
    name = f"bench-agent-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
    service = Unit(
        str(folder / f"{name}.service"),
        _service(root, command if keeper == "service" else [*command, "--once"], once=keeper == "timer"),
        f"systemctl --user enable --now {name}.service" if keeper == "service" else "",
    )
    if keeper == "service":
        return [service]
    timer = Unit(str(folder / f"{name}.timer"), _TIMER.format(root=_quoted(str(root))),
                 f"systemctl --user enable --now {name}.timer")  # fmt: skip
    return [service, timer]


_TIMER = """[Unit]
Description=Schedules of {root}, each minute

[Timer]
OnCalendar=minutely
AccuracySec=1s
Persistent=true

[Install]
WantedBy=timers.target
"""


def _service(root: Path, command: Sequence[str], *, once: bool) -> str:
    """Return the service. Only the agent's own process is killed when it ends, so that its runs continue."""
    lines = [
        "[Unit]",
        f"Description=Agent of the schedules of {_quoted(str(root))}",
        "",
        "[Service]",
        *(["Type=oneshot"] if once else ["Restart=always", "RestartSec=5"]),
        f"ExecStart={' '.join(map(_word, command))}",
        "KillMode=process",
    ]
    return "\n".join(lines + ([] if once else ["", "[Install]", "WantedBy=default.target"])) + "\n"


def _quoted(text: str) -> str:
    return text.replace("%", "%%")


def _word(text: str) -> str:
    """Return a word of a systemd command line: `%` and `$` would be expanded."""
    escaped = _quoted(text).replace("$", "$$").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if any(sign.isspace() or sign in "\"'\\;" for sign in escaped) else escaped


def install(texts: Sequence[Unit]) -> None:
    """Write the units; a crontab keeps its other lines."""
    for unit in texts:
        if not unit.path:
            _write_crontab(_without(_crontab(), unit) + unit.text)
            continue
        path = Path(unit.path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, unit.text)
        except OSError as error:
            raise unwritable(path, error) from error


def uninstall(texts: Sequence[Unit]) -> None:
    """Remove the units that exist."""
    for unit in texts:
        if unit.path:
            Path(unit.path).unlink(missing_ok=True)
        else:
            _write_crontab(_without(_crontab(), unit))


def _without(crontab: str, unit: Unit) -> str:
    """Return the crontab without the mark of this workspace and the line below it."""
    mark, lines = unit.text.partition("\n")[0], crontab.splitlines(keepends=True)
    marked = {at for at, line in enumerate(lines) if line.rstrip("\n") == mark}
    return "".join(line for at, line in enumerate(lines) if at not in marked and at - 1 not in marked)


def _crontab() -> str:
    done = _call(["crontab", "-l"])
    if done.returncode and "no crontab" not in done.stderr:
        raise BenchError(f"crontab: {done.stderr.strip()}", "bench schedule install service --dry-run")
    return done.stdout if not done.returncode else ""


def _write_crontab(text: str) -> None:
    done = _call(["crontab", "-"], text)
    if done.returncode:
        raise BenchError(f"crontab refused it: {done.stderr.strip()}", "bench schedule install crontab --dry-run")


def _call(command: list[str], text: str = "") -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError as error:
        raise BenchError("crontab is not installed", "bench schedule install service, with systemd") from error


def scrontab(scenario: Scenario, root: Path, file: Path, cron: str) -> str:
    """Return a Slurm job for the run itself, which submits its own array if it has one."""
    options = {"job-name": f"bench-{scenario.scenario}", "partition": scenario.partition, "account": scenario.account,
               "qos": scenario.qos}  # fmt: skip
    lines = [f"#SCRON --{name}={value}" for name, value in options.items() if value]
    command = shlex.join([sys.executable, "-m", "benchhouse", "-C", str(root), "run", "--new", str(file)])
    return "\n".join([*lines, f"{cron} {command}"]) + "\n"
