"""RO-Crate 1.1: `ro-crate-metadata.json`, to be placed next to the packet that it describes."""

import json
from typing import Any

from benchhouse.schema.exported import ExportedDocument, ExportedPacket, PacketExporter


def render(packet: ExportedPacket) -> ExportedDocument:
    claim = packet.claim
    root: dict[str, Any] = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Claim {claim.id}",
        "description": f"{claim.label}: {claim.statement}",
        "datePublished": packet.described_at,
        "identifier": claim.id,
        "hasPart": [{"@id": packet.file}],
        "variableMeasured": [{"@id": "#number"}],
        "mentions": [{"@id": "#measurement"}],
    }
    entities = [_descriptor(), root, _tar(packet), _number(packet), *_measurement(packet)]
    if packet.licence:
        root["license"] = {"@id": packet.licence}
        entities.append({"@id": packet.licence, "@type": "CreativeWork", "name": packet.licence,
                         "description": "The licence of the packet."})  # fmt: skip
    if packet.url:
        root["url"] = packet.url
    graph = {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": entities}
    left_out = () if packet.licence else ("the licence, which nobody said, and the format asks for: --licence URL",)
    return ExportedDocument(json.dumps(graph, ensure_ascii=False, allow_nan=False, indent=1) + "\n", left_out)


def _descriptor() -> dict[str, Any]:
    return {
        "@id": "ro-crate-metadata.json", "@type": "CreativeWork", "about": {"@id": "./"},
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
    }  # fmt: skip


def _tar(packet: ExportedPacket) -> dict[str, Any]:
    """Return the packet; its files are not entities, because they cannot be opened by name alone."""
    inside = f"{len(packet.files)} files, each by its sha256 in packet.json"
    return {
        "@id": packet.file, "@type": "File", "name": packet.file, "encodingFormat": "application/x-tar",
        "contentSize": str(packet.size), "sha256": packet.sha256,
        "description": f"The claim and all that proves it ({inside}); check it by: bench claim verify {packet.file}",
    }  # fmt: skip


def _number(packet: ExportedPacket) -> dict[str, Any]:
    claim = packet.claim
    number: dict[str, Any] = {
        "@id": "#number", "@type": "PropertyValue", "name": f"{claim.metric}.{claim.stat}", "value": claim.value,
        "unitText": claim.unit, "measurementTechnique": claim.method,
        "description": f"{claim.n} trials; {claim.direction or 'neither higher nor lower'} is better",
    }  # fmt: skip
    if claim.interval:
        number |= {"minValue": claim.interval[0], "maxValue": claim.interval[1]}
    return number


def _measurement(packet: ExportedPacket) -> list[dict[str, Any]]:
    claim = packet.claim
    trials = ", ".join(trial.trial_id for trial in claim.trials)
    return [
        {"@id": "#measurement", "@type": "CreateAction", "name": f"Measurement of {claim.scenario}",
         "startTime": claim.measured_from, "endTime": claim.measured_to, "instrument": {"@id": "#benchhouse"},
         "result": {"@id": packet.file}, "description": f"Trials {trials}"},
        {"@id": "#benchhouse", "@type": "SoftwareApplication", "name": "Benchhouse", "version": claim.benchhouse},
    ]  # fmt: skip


RO_CRATE = PacketExporter("RO-Crate 1.1 metadata of a packet: ro-crate-metadata.json", render)
