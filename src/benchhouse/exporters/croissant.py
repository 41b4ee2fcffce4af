"""Croissant 1.0 (MLCommons): the tables of a packet as record sets that are read from the packet itself."""

import json
from pathlib import PurePosixPath
from typing import Any

from benchhouse.schema.exported import ExportedDocument, ExportedPacket, PackedTable, PacketExporter

_PACKET = "packet"
_TYPES = {
    "text": "sc:Text", "texts": "sc:Text", "integer": "sc:Integer", "number": "sc:Float", "numbers": "sc:Float",
    "truth": "sc:Boolean", "time": "sc:DateTime",
}  # fmt: skip
_TERMS = (
    "citeAs", "column", "equivalentProperty", "extract", "field", "fileObject", "fileProperty", "fileSet", "format",
    "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex",
    "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform",
)  # fmt: skip
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    **{term: f"cr:{term}" for term in _TERMS},
}


def render(packet: ExportedPacket) -> ExportedDocument:
    claim = packet.claim
    content: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": f"claim-{claim.id}",
        "description": f"{claim.label}: {claim.statement}",
        "citeAs": f"[claim:{claim.id}]",
        "datePublished": packet.described_at[:10],
        "version": "1.0.0",
        "isLiveDataset": False,
    }
    content |= {"license": packet.licence} if packet.licence else {}
    content |= {"url": packet.url} if packet.url else {}
    content["distribution"] = [_tar(packet), *(_file(packet, table) for table in packet.tables)]
    content["recordSet"] = [_claimed(packet), *map(_records, packet.tables)]
    missing = [
        f"the {what}, which nobody said: {option}"
        for what, given, option in (("licence", packet.licence, "--licence"), ("address", packet.url, "--url"))
        if not given
    ]
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1)
    return ExportedDocument(f"{text}\n", tuple(missing))


def _tar(packet: ExportedPacket) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject", "@id": _PACKET, "name": packet.file,
        "description": "The claim and all that proves it; `bench claim verify` checks it by itself alone.",
        "contentUrl": packet.file, "contentSize": f"{packet.size} B", "encodingFormat": "application/x-tar",
        "sha256": packet.sha256,
    }  # fmt: skip


def _file(packet: ExportedPacket, table: PackedTable) -> dict[str, Any]:
    sha256, size = packet.files[table.file]
    return {
        "@type": "cr:FileObject", "@id": table.file, "name": table.file, "description": table.description,
        "containedIn": {"@id": _PACKET}, "contentUrl": table.file, "contentSize": f"{size} B",
        "encodingFormat": "application/x-parquet", "sha256": sha256,
    }  # fmt: skip


def _records(table: PackedTable) -> dict[str, Any]:
    """Return one record set per file, because a field has only one source."""
    own = f"{table.name}-{PurePosixPath(table.file).stem}"
    fields = [
        {
            "@type": "cr:Field", "@id": f"{own}/{column.name}", "name": f"{own}/{column.name}",
            "description": column.description, "dataType": _TYPES[column.kind],
            "source": {"fileObject": {"@id": table.file}, "extract": {"column": column.name}},
        }
        | ({"repeated": True} if column.kind in ("texts", "numbers") else {})
        for column in table.columns
    ]  # fmt: skip
    return {"@type": "cr:RecordSet", "@id": own, "name": own, "description": table.description, "field": fields}


def _claimed(packet: ExportedPacket) -> dict[str, Any]:
    """Return a record set with the claimed number itself."""
    claim = packet.claim
    low, high = claim.interval or (None, None)
    row = {
        "statement": (claim.statement, "sc:Text", "The claim in one sentence."),
        "label": (claim.label, "sc:Text", "PUBLICATION-GRADE or REALISM-GRADE."),
        "metric": (claim.metric, "sc:Text", "Name of the metric."),
        "stat": (claim.stat, "sc:Text", "Which statistic of it."),
        "value": (claim.value, "sc:Float", "Mean over the trials; of a comparison the change."),
        "unit": (claim.unit, "sc:Text", "Of the value."),
        "direction": (claim.direction or "", "sc:Text", "higher or lower is better; empty: neither."),
        "low": (low, "sc:Float", "Lower end of its interval."),
        "high": (high, "sc:Float", "Upper end of its interval."),
        "confidence": (claim.policy.confidence, "sc:Float", "Of the interval."),
        "n": (claim.n, "sc:Integer", "Trials behind it."),
    }
    known = {name: item for name, item in row.items() if item[0] is not None}
    return {
        "@type": "cr:RecordSet", "@id": "claim", "name": "claim", "description": "The number that is published.",
        "field": [
            {"@type": "cr:Field", "@id": f"claim/{name}", "name": f"claim/{name}", "description": about,
             "dataType": kind}
            for name, (_, kind, about) in known.items()
        ],
        "data": [{f"claim/{name}": value for name, (value, _, _) in known.items()}],
    }  # fmt: skip


CROISSANT = PacketExporter("Croissant 1.0 metadata of a packet, its tables as record sets", render)
