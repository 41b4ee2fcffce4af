"""Tells its figures without printing them; `benchhouse_client` does it in one call."""

import json
import os
from pathlib import Path

folder = os.environ.get("BENCHHOUSE_EMIT")
if folder:
    with (Path(folder) / "figures.jsonl").open("a") as file:
        for epoch in range(3):
            file.write(json.dumps({"accuracy": 0.5 + epoch / 10}) + "\n")
