"""YCSB: its final output; with `measurementtype=raw` it has the latency of every operation."""

import re
from array import array
from collections import defaultdict

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.schema.experiment import Role
from benchhouse.schema.imported import Imported, ImportedCase, their

TOOL = "ycsb"
_FIGURE = re.compile(r"\[([^\]]+)\], ([^,]+), (.+)")
_RAW_TITLE = re.compile(r"(\S+) latency raw data: op, timestamp\(ms\), latency\(us\)")
_RAW = re.compile(r"([^,\s]+),(\d{1,15}),(\S+)")
_LATENCY = re.compile(r"(?:(Average|Min|Max)|([\d.]{1,9})(?:st|nd|rd|th)?Percentile)Latency\((us|ms)\)")
_SUMMARY = re.compile(r"(Average|Min|Max)|p(50|90|95|99|99\.9)")  # of raw values
_STATS = {"Average": "mean", "Min": "min", "Max": "max"}
_RANK = "YCSB takes the value at n * p of the sorted ones, counted from 0"
_MEANS = (
    "of an operation, from its call to its end (with measurement.interval=intended, which the file does not say, from "
    "the time at which it was due); failed ones are of another kind, NAME-FAILED"
)
_LATENCIES = their(TOOL, "latency_us", "us", _MEANS, "lower", "latency")
_RUNTIME = their(TOOL, "run_time_ms", "ms", "the whole run, as YCSB says it", "lower")
_RATE = their(TOOL, "ops_per_s", "1/s", "operations of all kinds / time of the run", "higher", "throughput")
_ERRORS = their(TOOL, "error_rate", "1", "operations that did not return OK / all of that kind", "lower", "error_rate")
_GOOD = ("Return=OK", "Return=BATCHED_OK", "Return=0")


def claims(head: bytes, name: str) -> bool:
    return b"\n[OVERALL], RunTime(ms), " in b"\n" + head or _RAW_TITLE.match(head[:200].decode("latin-1")) is not None


def read(file: ForeignFile) -> Imported:
    sections: dict[str, dict[str, float]] = defaultdict(dict)
    raw: dict[str, array[float]] = {}
    for number, line in file.texts():
        if title := _RAW_TITLE.fullmatch(line):
            raw[title[1]] = array("d")
        elif (point := _RAW.fullmatch(line)) and point[1] in raw:
            raw[point[1]].append(file.number(point[3], "latency", number))
        elif figure := _FIGURE.fullmatch(line):
            section, key, text = figure.groups()
            if text == "NaN" and sections[section].get("Operations") == 0:
                continue
            if key in sections[section]:
                file.problem(f"[{section[:60]}], {key[:60]} for the second time: are two results in it?", number)
            sections[section][key] = file.number(text, key, number)
        elif re.match(r"\[[^\]]+\], ", line) or line.partition(",")[0] in raw:
            file.problem("not a line of YCSB's result", number)
    if not raw and "RunTime(ms)" not in sections.get("OVERALL", {}):
        file.problem("there is no result in it: did the run end?")
    collected = {name: values for name, values in sections.items() if name.startswith("TOTAL_GC")}
    names = [name for name in dict.fromkeys([*sections, *raw]) if name not in collected]
    cases = [_case(name, sections.get(name, {}), raw.get(name)) for name in names]
    good = [case for case in cases if case.samples]
    if not good:
        file.problem("no operation was measured")
    good[0].facts |= collected
    good[0].missing |= {str(case.target["name"]): "it has no number" for case in cases if not case.samples}
    return Imported(TOOL, None, good)


def _case(name: str, figures: dict[str, float], values: "array[float] | None") -> ImportedCase:
    """Return the case of the whole run ('OVERALL') or of one kind of operation."""
    case = ImportedCase({"name": name})
    if name == "OVERALL":
        case.add_figure(_RUNTIME, figures.get("RunTime(ms)"))
        case.add_figure(_RATE, figures.get("Throughput(ops/sec)"))
        return case
    if values is not None:
        told = {_stat(found[1], found[2]): figures[key] for key in figures if (found := _SUMMARY.fullmatch(key))}
        case.add(_LATENCIES, values, told, {stat: _RANK for stat in told if stat.startswith("p")})
    else:
        _add_figures(case, figures)
    returned = {key: count for key, count in figures.items() if key.startswith("Return=")}
    every = sum(returned.values())
    good = sum(returned.get(key, 0.0) for key in _GOOD)
    case.add_figure(_ERRORS, 1 - good / every if every else None, "the file does not say what operations returned")
    case.facts |= returned
    return case


def _add_figures(case: ImportedCase, figures: dict[str, float]) -> None:
    case.missing["samples"] = "YCSB prints them with measurementtype=raw"
    if not figures.get("Operations"):
        case.missing["latency"] = "no operation was measured"
        return
    for key, value in figures.items():
        if found := _LATENCY.fullmatch(key):
            stat = _stat(found[1], found[2])
            role: Role | None = "latency" if stat == "p50" else None
            metric = their(TOOL, f"latency_{stat}_us", "us", f"{stat} {_MEANS}, as YCSB says it", "lower", role)
            case.add_figure(metric, value * (1e3 if found[3] == "ms" else 1.0))


def _stat(name: str | None, percentile: str | None) -> str:
    return f"p{float(percentile):g}" if percentile else _STATS[name or ""]


YCSB = Importer("ycsb run: what it prints, also with measurementtype=raw", claims, read)
