"""ado: the output of `ado show measurements operation ID -o csv`, one row per measurement."""

from benchhouse.documents.csv_rows import csv_rows
from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.schema.imported import Imported, ImportedCase, their

TOOL = "ado"
_COLUMNS = {
    "", "request_index", "result_index", "identifier", "experiment_id", "generatorid", "reason", "request_id",
    "entity_index", "valid",
}  # fmt: skip
_NONE = ("", "not_measured")
_ERRORS = their(TOOL, "error_rate", "1", "measurements that ado calls not valid / all of the entity", "lower")


def claims(head: bytes, name: str) -> bool:
    headings = head.split(b"\n", 1)[0].strip().split(b",")
    return {b"identifier", b"generatorid"} <= set(headings)


def read(file: ForeignFile) -> Imported:
    rows = list(csv_rows(file))
    if not rows:
        file.problem("there is no measurement in it")
    for line, row in rows:
        if "experiment_id" not in row:
            file.problem("no column experiment_id: export with --property-format target", 1)
        if row.get("valid", "True") not in ("True", "False"):
            file.problem(f"valid: expected True or False, found {row['valid'][:60]!r}", line)
    headings = [name for name in rows[0][1] if name not in _COLUMNS]
    settings = [name for name in headings if all(_names(row["identifier"], name, row[name]) for _, row in rows)]
    measured: dict[tuple[str, str], list[tuple[int, dict[str, str]]]] = {}
    for line, row in rows:
        measured.setdefault((row["experiment_id"], row["identifier"]), []).append((line, row))
    properties = [name for name in headings if name not in settings]
    return Imported(TOOL, None, [_case(file, same, settings, properties) for same in measured.values()])


def _names(identifier: str, name: str, value: str) -> bool:
    """Return whether the entity's id contains the property, as in `batch.1-model.tiny`; observed properties may not
    match.
    """
    return f"-{name}.{value}-" in f"-{identifier}-"


def _case(
    file: ForeignFile, same: list[tuple[int, dict[str, str]]], settings: list[str], names: list[str]
) -> ImportedCase:
    """Return the measurements of one entity by one experiment; `names` are all observed properties of the file."""
    first = same[0][1]
    case = ImportedCase({"name": first["experiment_id"]}, {name: _setting(first[name]) for name in settings})
    good = [(line, row) for line, row in same if row.get("valid", "True") == "True"]
    for name in names:
        values = [file.number(row[name], name, line) for line, row in good if row[name] not in _NONE]
        if values:
            case.add(their(TOOL, name, "1", f"the observed property {name}, in a unit that ado does not keep"), values)
    if "valid" in first:
        case.add_figure(_ERRORS, 1 - len(good) / len(same))
    for reason in dict.fromkeys(row.get("reason", "") for _, row in same if row.get("valid") == "False"):
        case.doubts.append(("ado_failed", reason))
    case.missing["units"] = "ado has none"
    return case


def _setting(text: str) -> str | float:
    try:
        return int(text)
    except ValueError:
        return text


ADO = Importer("ado show measurements operation ID -o csv", claims, read)
