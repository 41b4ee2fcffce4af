"""Convert the server of a descriptor to a recipe."""

from typing import Any
from urllib.parse import urlsplit

from benchhouse.plan.descriptor_commands import escaped, simple_words, value_of_variable
from benchhouse.schema.descriptor import DescriptorProbe, DescriptorServer
from benchhouse.schema.image import tagged
from benchhouse.schema.recipe import LOOPBACK

_PATIENCE_S = 600  # a server may need long to load its model
_ASKED_OTHERWISE = ("initial_delay_seconds", "period_seconds", "timeout_seconds", "failure_threshold")


def server_recipe(server: DescriptorServer, name: str) -> tuple[dict[str, Any] | None, list[tuple[str, str, str]]]:
    """Return the recipe as a scenario writes it, or None; and the reasons against it as (key, message, expected).

    The ports are those of the descriptor because the client knows them.
    """
    env = server.env
    line = f"{env.start_command.strip()} {env.start_command_args.strip()}".strip()
    if not line:
        message = "there is no start_command, and what an image does by itself is not known outside of it"
        return None, [("", message, "start_command = '/opt/bin/server'")]
    words = simple_words(line)
    program = words[0] if words else "/bin/sh"
    port, others = env.ports[0], env.ports[1:]
    recipe: dict[str, Any] = {
        "name": f"{name[:90]}-server",
        "program": [program],
        "command": ["{program}", *(words[1:] if words else ["-c", escaped(line)])],
        "ports": {"port": port} | {f"port_{at}": other for at, other in enumerate(others, 1)},
        "endpoint": f"http://{LOOPBACK}:{port}",
        "environment": {key: value_of_variable(value) for key, value in env.vars.items()},
        "ready": _ready(env.readiness_probe, port),
    }
    try:
        recipe |= {"published": str(tagged(env.docker_image))} if tagged(env.docker_image).tag != "latest" else {}
    except ValueError as error:
        return None, [("docker_image", str(error), "an image and its version: name:1.2")]
    return recipe, []


def without_effect(server: DescriptorServer) -> list[str]:
    """Return notes on the settings of the server that have no effect here, and why."""
    env, notes = server.env, list[str]()
    probe = env.readiness_probe
    if isinstance(probe, DescriptorProbe) and (
        given := [key for key in _ASKED_OTHERWISE if key in probe.model_fields_set]
    ):
        many = f"it is asked again and again until it answers, for {_PATIENCE_S} s at most"
        notes.append(f"server.env.readiness_probe: {', '.join(given)}: {many}")
    lives = [key for key in ("liveliness_probe", "liveness_probe") if getattr(env, key) is not None]
    notes += [
        f"server.env.{key}: a server that ends is seen at once; one that hangs, by what its client asks"
        for key in lives
    ]
    zones = [key for key in ("availability_zone", "aws_zone_id") if getattr(server.hardware, key)]
    notes += [f"server.hardware.{key}: it runs beside its client" for key in zones]
    if tagged(env.docker_image).tag == "latest":
        notes.append(
            f"server.env.docker_image = {env.docker_image}: another image tomorrow, so not kept as what served"
        )
    if server.output.metrics:
        names = ", ".join(metric.name for metric in server.output.metrics)
        notes.append(f"server.output.metrics: {names}: only what the client prints is measured")
    return notes


def _ready(probe: DescriptorProbe | str | None, port: int) -> dict[str, Any]:
    if probe is None:
        return {"kind": "tcp", "timeout": _PATIENCE_S}
    if isinstance(probe, str):
        parts = urlsplit(probe)
        return _http(parts.scheme, parts.port or port, parts.path or "/", 1)
    return _http(probe.scheme.lower(), probe.port or port, probe.path, probe.success_threshold)


def _http(scheme: str, port: int, path: str, in_a_row: int) -> dict[str, Any]:
    url = f"{scheme}://{LOOPBACK}:{port}{escaped(path)}"
    return {"kind": "http", "url": url, "timeout": _PATIENCE_S, "in_a_row": in_a_row}
