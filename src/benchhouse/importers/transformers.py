"""The Trainer of transformers: `trainer_state.json`."""

import re

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.schema.experiment import Direction
from benchhouse.schema.imported import Imported, ImportedCase, their

TOOL = "transformers"
_NO_METRICS = ("epoch", "step")


def claims(head: bytes, name: str) -> bool:
    return b'"log_history"' in head and b'"global_step"' in head


def read(file: ForeignFile) -> Imported:
    document = file.json()
    values: dict[str, list[float]] = {}
    for entry in document["log_history"].items():
        for key, node in entry.members():
            if key not in _NO_METRICS and node.value is not None:
                values.setdefault(key, []).append(node.number())
    case = ImportedCase({"name": "trainer"}, {"batch_size": document.maybe_number("train_batch_size")})
    for key, own in values.items():
        metric = their(
            TOOL, re.sub(r"[^A-Za-z0-9_.-]", "_", key), _unit(key), f"{key} as the trainer logged it", _better(key)
        )
        case.add(metric, own)
    case.facts |= {"steps": document["global_step"].number(), "epochs": document.maybe_number("epoch")}
    case.missing["step times"] = "the file has none: a trainer logs every logging_steps steps, without a time"
    return Imported(TOOL, None, [case])


def _better(key: str) -> Direction | None:
    if key.endswith(("loss", "runtime")):
        return "lower"
    return "higher" if key.endswith(("per_second", "accuracy", "f1")) else None


def _unit(key: str) -> str:
    return "s" if key.endswith("runtime") else "1/s" if key.endswith("per_second") else "1"


TRANSFORMERS = Importer("Trainer of transformers: trainer_state.json", claims, read)
