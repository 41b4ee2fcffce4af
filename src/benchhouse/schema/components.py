"""Names of the components of a trial whose output is logged. Contains no models, because every worker imports it."""

import re

CAP_BYTES = 8 << 20
EXPERIMENT = "experiment"
WORKER = "worker"
ORCHESTRATOR = "orchestrator"
SLURM = "slurm"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OURS = {EXPERIMENT, WORKER, ORCHESTRATOR, SLURM, "stdout", "stderr", "trial"}


def check_component(name: str) -> str:
    """Return the name of a service if it can name its log file; raise ValueError otherwise."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} can't name a log: up to 64 letters, digits and . _ -, a letter or digit first")
    if name.lower() in _OURS:
        raise ValueError(f"{name!r} can't name a log: it is one of our own ({', '.join(sorted(_OURS))})")
    return name


def is_plain(name: str) -> bool:
    """Return whether a name has the form of a log's name, of Benchhouse or of a service."""
    return bool(_NAME.fullmatch(name))
