"""ReFrame: the report of a session, an output of `--report-file`."""

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.imported import Imported, ImportedCase, Setting, their

TOOL = "reframe"
_KNOWN = 4
_FAILED = their(TOOL, "error_rate", "1", "0: ReFrame says 'pass'; 1: it does not", "lower", "error_rate")


def claims(head: bytes, name: str) -> bool:
    return b'"session_info"' in head[:200] and b'"data_version"' in head[:1000]


def read(file: ForeignFile) -> Imported:
    document = file.json()
    session = document["session_info"]
    version = session["data_version"].text()
    if version.partition(".")[0] != str(_KNOWN):
        file.problem(f"its format has version {version}; {_KNOWN} is known")
    cases = [_case(test) for run in document["runs"].items() for test in run["testcases"].items()]
    when, where = session.maybe_text("time_start"), session.maybe_text("hostname")
    return Imported(TOOL, session.maybe_text("version"), cases, when, where)


def _case(test: JsonNode) -> ImportedCase:
    """Return the case of a test; a test that did not pass gets a warning, whether or not it has values."""
    settings: dict[str, Setting] = {key: test.maybe_text(key) for key in ("system", "partition", "environ")}
    case = ImportedCase({"name": (test.get("display_name") or test["name"]).text()}, settings)
    values = test.get("perfvalues")
    for key, node in values.members() if values is not None else ():
        entry = list(node.items())
        if len(entry) not in (5, 6):  # since 4.9 also with its result
            node.refuse(f"expected value, reference, two bounds and unit, found {len(entry)} items")
        name = key.rpartition(":")[2]
        reference = f", reference {entry[1].value}" if entry[1].value else ""
        unit = entry[4].value or "1"
        case.add(their(TOOL, name, str(unit), f"the performance variable {name} of the test{reference}"),
                 (entry[0].number(),))  # fmt: skip
        case.facts.setdefault("references", {})[name] = [item.value for item in entry[1:4]]
    missing = "a test has one value of each variable" if case.samples else "the test has no performance value"
    case.missing["samples"] = missing
    result = test.maybe_text("result")
    case.add_figure(_FAILED, float(result != "pass"))
    if result != "pass":
        why = f"{test.maybe_text('fail_phase')}: {test.maybe_text('fail_reason')}"
        case.doubts.append((f"test_{result}", f"{case.target['name']}: {why}"))
    return case


REFRAME = Importer("reframe --report-file", claims, read)
