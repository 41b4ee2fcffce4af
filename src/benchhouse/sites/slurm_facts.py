"""Read facts from the plain output of Slurm's commands, which is the same from 20.11 to 24.11. Pure."""

import re
from dataclasses import dataclass, field

from benchhouse.schema.site import Partition, Quality

NODES = ["sinfo", "-h", "-N", "-o", "%P|%N|%c|%m|%G|%l"]
CONFIG = ["scontrol", "show", "config"]
QUALITIES = ["sacctmgr", "-n", "-P", "show", "qos", "format=name,maxwall,maxjobsperuser"]
_GPU = re.compile(r"(?:^|,)gpu(?::[A-Za-z][\w.-]*)?(?::(\d+))?")
_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_NUMBER = re.compile(r"\d+")


def associations_of(user: str) -> list[str]:
    """Return the command that lists the accounts and qualities under which a user may submit."""
    return ["sacctmgr", "-n", "-P", "show", "assoc", "where", f"user={user}", "format=account,qos,defaultqos"]


@dataclass
class Accounts:
    """The accounts and qualities under which this user may submit."""

    accounts: list[str] = field(default_factory=list)
    qualities: list[str] = field(default_factory=list)
    default_quality: str = ""


def read_partitions(text: str) -> tuple[dict[str, Partition], str]:
    """Return the partitions by name, and the default. The largest of unequal nodes counts: jobs may request it."""
    rows: dict[str, list[tuple[int, int, int, float | None]]] = {}
    default = ""
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) < 6:
            continue
        name, _, cpus, memory, gres, limit = parts[:6]
        if name.endswith("*"):
            name = default = name.rstrip("*")
        rows.setdefault(name, []).append((_number(cpus), _number(memory), read_gpus(gres), read_time(limit)))
    partitions = {
        name: Partition(
            nodes=len(nodes),
            cpus=max(item[0] for item in nodes) or None,
            memory=(max(item[1] for item in nodes) << 20) or None,  # Slurm's megabyte is 2^20
            gpus=max(item[2] for item in nodes),
            max_time=nodes[0][3],
        )
        for name, nodes in rows.items()
    }
    return partitions, default


def read_gpus(gres: str) -> int:
    """Return the GPUs in a node's generic resources, such as gpu:a100:4(S:0-1)."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    return sum(int(match[1] or 1) for match in _GPU.finditer(plain))


def read_time(text: str) -> float | None:
    """Return the seconds of 2-00:00:00, 01:00:00, or 30:00; None for infinite or no time."""
    match = _TIME.fullmatch(text.strip())
    if not match:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds) or None


def read_config(text: str) -> dict[str, str]:
    """Return the settings of `scontrol show config`, with the controller's clock as `as of`."""
    settings = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            settings[key.strip()] = value.strip()
        elif line.startswith("Configuration data as of "):
            settings["as of"] = line.rpartition(" ")[2].strip()
    return settings


def read_qualities(text: str) -> dict[str, Quality]:
    qualities = {}
    for line in text.splitlines():
        name, limit, jobs, *_ = [*line.strip().split("|"), "", ""]
        if name:
            qualities[name] = Quality(max_time=read_time(limit), max_jobs=int(jobs) if jobs.isdecimal() else None)
    return qualities


def read_associations(text: str) -> Accounts:
    own = Accounts()
    for line in text.splitlines():
        account, qualities, default, *_ = [*line.strip().split("|"), "", ""]
        if account and account not in own.accounts:
            own.accounts.append(account)
        own.qualities += [name for name in qualities.split(",") if name and name not in own.qualities]
        own.default_quality = own.default_quality or default
    return own


def _number(text: str) -> int:
    match = _NUMBER.match(text)  # sinfo writes 64+ if nodes differ
    return int(match[0]) if match else 0
