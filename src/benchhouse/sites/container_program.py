"""Which program enters containers: on this node, and on a compute node, where a short job looks.

The site's modules and variables are set first, as in every job. An answer is the program's version, empty where there
is none, None where nobody answered.
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
    """`probed` is what was found out of Slurm, for what the site does not say."""
    flags = [f"--immediate={NODE_S}", "--time=1", "--ntasks=1", "--job-name=bench-site-check", "--input=none"]
    wanted = {name: getattr(site.slurm, name) or probed.get(name) for name in ("partition", "account", "qos")}
    flags += [*(f"--{name}={value}" for name, value in wanted.items() if value), *site.slurm.flags]
    return _answer(ask(["srun", *flags, *_shell(site)], limit_s=NODE_S + 10))


def _shell(site: Site) -> list[str]:
    load = [f"module load {shlex.join(site.modules)} >/dev/null 2>&1"] if site.modules else []
    variables = [f"export {name}={shlex.quote(value)}" for name, value in site.environment.items()]
    login = ["-l"] if site.modules else []  # such a shell knows `module`
    return ["bash", *login, "-c", "\n".join([*load, *variables, _LOOK])]


def _answer(printed: str | None) -> str | None:
    """The last line: a login shell may greet."""
    return printed if printed is None else printed.strip().rpartition("\n")[2]
