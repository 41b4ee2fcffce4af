"""Real payloads of GitHub, changed where a test says so, and signed as GitHub signs them."""

import copy
import hashlib
import hmac
import json
import uuid
from pathlib import Path
from typing import Any

SECRET = "planted-webhook-secret"
DATA = Path(__file__).parents[1] / "data" / "github"
REPOSITORY = "Codertocat/Hello-World"
WORKSPACE = (
    f"github: {{repositories: [{REPOSITORY}], webhook_secret: $HOOK_SECRET, events: "
    "{issue_comment: [], push: [s.yaml], release: [s.yaml], deployment: [s.yaml]}}\n"
)


def payload(event: str, **changes: Any) -> dict[str, Any]:
    """`comment__body="x"` sets the body of its comment."""
    content = copy.deepcopy(json.loads((DATA / f"{event}.json").read_text()))
    for path, value in changes.items():
        *parents, name = path.split("__")
        at = content
        for parent in parents:
            at = at[parent]
        at[name] = value
    return content


def request(event: str, content: dict[str, Any], *, secret: str = SECRET, delivery: str = "") -> tuple[dict, bytes]:
    """Headers and body."""
    body = json.dumps(content).encode()
    return {
        "content-type": "application/json",
        "x-github-event": event,
        "x-github-delivery": delivery or str(uuid.uuid4()),
        "x-hub-signature-256": f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}",
    }, body
