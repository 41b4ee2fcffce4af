"""Find the program that runs containers: on this node, or on a compute node, by a short job.

The site's modules and variables are set first, as in every job. The result is the program's version, an empty string if
there is no program, or None if there was no answer.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from benchhouse.schema.site import Site
from benchhouse.sites.commands import ask

NODE_S = 60  # the longest wait for a compute node
_LOOK = """program=$(command -v apptainer || command -v singularity) || exit 0
"$program" --version"""


def on_this_node(site: Site) -> str | None:
    return _answer(ask(_shell(site)))


def on_compute_node(site: Site, probed: Mapping[str, Any]) -> str | None:
    """Return the version on a compute node. `probed` has the Slurm facts for settings that the site leaves out."""
    flags = [f"--immediate={NODE_S}", "--time=1", "--ntasks=1", "--job-name=bench-site-check", "--input=none"]
    wanted = {name: getattr(site.slurm, name) or probed.get(name) for name in ("partition", "account", "qos")}
    flags += [*(f"--{name}={value}" for name, value in wanted.items() if value), *site.slurm.flags]
    return _answer(ask(["srun", *flags, *_shell(site)], limit_s=NODE_S + 10))


def _shell(site: Site) -> list[str]:
    load = [f"module load {shlex.join(site.modules)} >/dev/null 2>&1"] if site.modules else []
    variables = [f"export {name}={shlex.quote(value)}" for name, value in site.environment.items()]
    login = ["-l"] if site.modules else []  # a login shell knows `module`
    return ["bash", *login, "-c", "\n".join([*load, *variables, _LOOK])]


def _answer(printed: str | None) -> str | None:
    """Return the last line, because a login shell may print a greeting."""
    return printed if printed is None else printed.strip().rpartition("\n")[2]
