"""What a measurement depends on besides its plan."""

from typing import Any

from benchhouse.runs.ledger import Ledger
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.runs.server_images import used_images
from benchhouse.schema.digests import digest
from benchhouse.schema.resources import Runtime


def conditions(prepared: PreparedRun) -> dict[str, str]:
    """By name, their digests: trials made under different ones don't belong into one mean."""
    scenario = prepared.plan.scenario
    # Fields that are new count where they are given: a run of an earlier version can be carried on.
    asked = [
        {key: value for key, value in item.model_dump().items() if key not in ("ntasks", "gres") or value is not None}
        for item in prepared.plan.all_resources
    ]
    image, runtimes = prepared.image_digest(), [_told(spec) for spec in prepared.plan.runtimes]
    servers = used_images(prepared.plan.services)
    return (
        {
            "experiment code": prepared.code_digest,
            "environment": digest(dict(scenario.environment)),
            "runtime": digest(runtimes if len(runtimes) > 1 else runtimes[0]),
            "resources": digest(asked if len(asked) > 1 else asked[0]),
            "contract": prepared.contract.digest if prepared.contract else "",
        }
        | ({"image": image} if image else {})
        | ({"server image": digest(servers)} if servers else {})
    )


def _told(runtime: Runtime) -> dict[str, Any]:
    """Without what says nothing, so that runs from before there was such a key can go on."""
    silent = {name for name in ("shared", "environments") if not getattr(runtime, name)}
    return runtime.model_dump(exclude=silent)


def changed_conditions(ledger: Ledger, prepared: PreparedRun) -> list[str]:
    before = ledger.record.conditions
    return [name for name, value in conditions(prepared).items() if before.get(name, value) != value]
