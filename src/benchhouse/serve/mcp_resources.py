"""Reports and sealed evidence as resources of the Model Context Protocol."""

import base64
import json
from typing import Any

from mcp import UriTemplate, types

from benchhouse.api.rows import plain
from benchhouse.api.workspace import Workspace
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.serve.reading_verbs import REPORTS
from benchhouse.serve.verb_requests import hide_places, json_text

_REPORT = "bench://runs/{run}/report/{form}"
_TRIALS = "bench://runs/{run}/evidence"
_TRIAL = "bench://runs/{run}/evidence/{trial}"
_FILE = "bench://runs/{run}/evidence/{trial}/{+file}"
_MEANINGS = {
    _REPORT: ("report", "The report of a run: form is html, markdown or json.", None),
    _TRIALS: ("trials", "The sealed trials of a run, with their outcomes and the digests of their manifests.", "json"),
    _TRIAL: ("trial", "The files of a sealed trial that its manifest names, with sizes and digests.", "json"),
    _FILE: ("file", "One of these files, as it was sealed.", None),
}
_JSON = "application/json"
_LISTED = 20
_LARGEST = 4 << 20


class McpResources:
    """The resources of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._templates = {template: UriTemplate.parse(template) for template in _MEANINGS}

    def listed(self) -> list[types.Resource]:
        """Return the reports of the newest runs; older reports and all evidence are available by the templates."""
        return [
            types.Resource(
                uri=self._templates[_REPORT].expand({"run": run.run_id, "form": "markdown"}),
                name=f"report of {run.run_id}",
                description=f"{run.scenario}, {run.state}",
                mime_type=REPORTS["markdown"],
            )
            for run in self._workspace.run_page(limit=_LISTED).runs
        ]

    def templates(self) -> list[types.ResourceTemplate]:
        return [
            types.ResourceTemplate(
                uri_template=template, name=name, description=meaning, mime_type=_JSON if kind else None
            )
            for template, (name, meaning, kind) in _MEANINGS.items()
        ]

    def read(self, uri: str) -> types.TextResourceContents | types.BlobResourceContents:
        """Return the content of a resource. Raise BenchError if it does not exist or is too large."""
        for template, parsed in self._templates.items():
            if (named := parsed.match(uri)) is not None:
                names = {name: str(value) for name, value in named.items()}
                return self._read(template, uri, names)
        raise NotFoundError(f"there is no resource {uri[:200]!r}", f"there are {', '.join(_MEANINGS)}")

    def _read(
        self, template: str, uri: str, names: dict[str, str]
    ) -> types.TextResourceContents | types.BlobResourceContents:
        run = self._workspace[names["run"]]
        if template == _REPORT:
            form = next((form for form in REPORTS if form == names["form"]), None)
            if form is None:
                raise NotFoundError(f"a report has no form {names['form'][:80]!r}", f"there are {', '.join(REPORTS)}")
            text = self._workspace.report_text(run.id, form=form)
            _check_size(f"the report of {run.id}", len(text))
            return _text(uri, hide_places(text, self._workspace), REPORTS[form])
        if template == _TRIALS:
            return self._data(uri, run.trials())
        evidence = run.evidence(names["trial"])
        if template == _TRIAL:
            return self._data(uri, plain(evidence.trial) | {"sealed": evidence.sealed, "files": plain(evidence.files)})
        with evidence.open(names["file"]) as file:
            content = file.read(_LARGEST + 1)
        _check_size(names["file"], len(content))
        try:
            if b"\0" not in content:
                return _text(uri, content.decode(), "text/plain")
        except UnicodeDecodeError:
            pass
        blob = base64.b64encode(content).decode()
        return types.BlobResourceContents(uri=uri, blob=blob, mime_type="application/octet-stream")

    def _data(self, uri: str, value: Any) -> types.TextResourceContents:
        return _text(uri, json.dumps(json.loads(json_text(value, self._workspace)), indent=1), _JSON)


def _check_size(name: str, size: int) -> None:
    if size > _LARGEST:
        raise BenchError(f"{name} has more than {_LARGEST >> 20} MiB", "download it from `bench serve`")


def _text(uri: str, text: str, media_type: str) -> types.TextResourceContents:
    return types.TextResourceContents(uri=uri, text=text, mime_type=media_type)
