"""A space as `ado get space` writes it: wrapped in what its store knows of it, its experiments described in full.

Read as the file that `ado create space` takes, with everything where it stands in the file that was written.
"""

from typing import Any

from benchhouse.documents.document import Document, Loc

_REFERENCE = {
    "actuatorIdentifier": "actuatorIdentifier",
    "experimentIdentifier": "identifier",
    "experimentVersion": "version",
    "parameterization": "parameterization",
}
"""What a space says of an experiment, and how the same is called where the experiment is described."""


def is_exported(data: Any) -> bool:
    return isinstance(data, dict) and ("entitySpace" in _body(data) or "experiments" in _described(data))


def plain_space(document: Document) -> Document:
    """A view that has the shape of a space's own file; any other document as it is."""
    body = _body(document.data)
    home: Loc = () if body is document.data else ("config",)
    described = _described(document.data)
    if not home and not described:
        return document
    data = dict(body)
    places: dict[Loc, Loc] = {(key,): (*home, key) for key in data}
    if described:
        listed: Loc = (*home, "experiments", "experiments")
        data["experiments"] = [_reference(item) for item in described["experiments"]]
        places["experiments",] = listed
        for number, item in enumerate(data["experiments"]):
            for key in item if isinstance(item, dict) else ():
                places["experiments", number, key] = (*listed, number, _REFERENCE[key])
    return document.assemble(home, data, places)


def _body(data: dict[str, Any]) -> dict[str, Any]:
    config = data.get("config")
    return config if isinstance(config, dict) else data


def _described(data: dict[str, Any]) -> dict[str, Any]:
    """The experiments, where they are a catalogue and not a list; empty where it holds no list."""
    catalogue = _body(data).get("experiments")
    return catalogue if isinstance(catalogue, dict) and isinstance(catalogue.get("experiments"), list) else {}


def _reference(experiment: Any) -> Any:
    if not isinstance(experiment, dict):
        return experiment
    return {ours: experiment[theirs] for ours, theirs in _REFERENCE.items() if theirs in experiment}
