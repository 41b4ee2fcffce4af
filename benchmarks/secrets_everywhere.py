"""Does a secret leave the process anywhere, in any encoding?

Every documented way in gets a secret of its own: parameters, headers, addresses, variables with whole addresses, axes,
the environment, recipes and their servers, monitors, credentials that drivers read by themselves, channels
of alarms, engines and stores. The experiment, a server and a Prometheus endpoint then say every secret that they got,
in five encodings, wherever something can be said: output, logs, metadata, warnings, failures, artifacts.
Files with a secret in plain text are given to the commands that must refuse them.

Then everything that left the processes is searched for every secret in each encoding: the workspace with runs,
evidence, tables (as rows too), logs, reports, claims and their packets, an evidence store, another workspace, the
cache, temporary files, and what the commands printed.

    python benchmarks/secrets_everywhere.py [--json] [--keep FOLDER]

Exits 1 unless nothing is found, and unless every secret has reached who needs it.
"""

import argparse
import base64
import gzip
import io
import json
import os
import socketserver
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

STEMS = ("hunter", "made-up-")  # each secret begins with one of these
ODD = '/p@s"s w&rd+\u00fc'  # what each encoding writes in another way


def in_base64(raw: bytes) -> list[str]:
    """At each of its three places in something longer, without the letters that it shares with its neighbours."""
    coded = [base64.b64encode(bytes(before) + raw).decode() for before in range(3)]
    return [text[(0, 2, 3)[before] : 8 * (before + len(raw)) // 6] for before, text in enumerate(coded)]


ENCODINGS: dict[str, Callable[[str], list[str]]] = {
    "plain": lambda secret: [secret],
    "base64": lambda secret: in_base64(secret.encode()),
    "url": lambda secret: [quote(secret), quote(secret, safe=""), quote(quote(secret, safe=""), safe="")],
    "json": lambda secret: [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]],
    "hex": lambda secret: [secret.encode().hex()],
}
SAY = """
import base64, json, os
from urllib.parse import quote

def said(secret):
    yield secret
    yield base64.b64encode(f"me:{secret}".encode()).decode()
    yield base64.b64encode(secret.encode()).decode()
    yield quote(secret)
    yield quote(quote(secret, safe=""), safe="")
    yield json.dumps({"a": secret})
    yield secret.encode().hex()

def seen(*values):
    with open(os.environ["SEEN"], "a") as file:
        for value in values:
            file.write(json.dumps(value) + "\\\\n")
""".replace("\\\\n", "\\n")
EXPERIMENT = (
    SAY
    + """
import sys
from typing import Any, ClassVar
from benchhouse import Context, Metric, experiment

def texts(value):
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []

@experiment("telltale", version="1.0", metrics=[Metric(name="x", direction="lower")])
def telltale(target: dict, ctx: Context, given: Any = None, fail: bool = False, token: str = ""):
    names = ("DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "BENCH_SERVICE_OUTSIDE")
    secrets = texts(target) + texts(given) + texts(token) + [os.environ[name] for name in names if name in os.environ]
    with open(target["credentials_file"], encoding="utf-8") as file:
        secrets += [line.strip().partition(" = ")[2] for line in file if " = " in line]
    seen(*secrets)
    lines = [line for secret in secrets for line in said(secret)]
    for line in lines:
        print("told", line)
        print("told", line, file=sys.stderr)
    ctx.metadata(told=lines, **{"key " + line: 1 for line in lines})
    ctx.warn("told", " ".join(lines))
    (ctx.artifacts / "told.bin").write_bytes("\\\\0".join(lines).encode())
    ctx.emit("x", 1.0 + 0.001 * ctx.repetition)
    if fail:
        raise ValueError(" ".join(lines))
""".replace("\\\\0", "\\0")
)
SERVER = (
    SAY
    + """
import http.server, sys
port, *secrets = sys.argv[1:]
secrets += [os.environ["ECHO_TOKEN"]]
seen(*secrets)
for secret in secrets:
    for line in said(secret):
        print("server", line, flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), http.server.BaseHTTPRequestHandler).serve_forever()
"""
)
PLAIN = {  # files that must be refused, and not quoted
    "header.yaml": "scenario: p\nexperiment: telltale\ntarget: {headers: {Authorization: Bearer %s}}\n",
    "key.yaml": "scenario: p\nexperiment: telltale\ntarget: {headers: {X-Api-Key: %s}}\n",
    "monitor.yaml": "scenario: p\nexperiment: telltale\nmonitors: {prometheus: [{url: 'http://me:%s@h/m'}]}\n",
    "dataset.yaml": "scenario: p\nexperiment: telltale\nartifacts: {dataset: 'https://me:%s@h/d'}\n",
    "slash.yaml": "scenario: p\nexperiment: telltale\ntarget: {url: 'http://me:a/%s@h/d'}\n",
    "words.yaml": "scenario: p\nexperiment: telltale\nworkload: {given: '--password=%s'}\n",
    "spark.yaml": "scenario: p\nexperiment: telltale\nspark: {conf: {spark.authenticate.secret: %s}}\n",
    "description.yaml": "scenario: p\nexperiment: telltale\ndescription: at http://me:%s@h\n",
}


@dataclass
class Search:
    """Secrets by their way in, what left by its way out, and what was found of the one in the other."""

    secrets: dict[str, str] = field(default_factory=dict)
    outputs: list[tuple[str, bytes]] = field(default_factory=list)

    def plant(self, way: str, odd: bool = True) -> str:
        """A new secret; `odd`: with signs that encodings write in another way."""
        self.secrets[way] = f"hunter{len(self.secrets):02d}-{os.urandom(6).hex()}" + (ODD if odd else "")
        return self.secrets[way]

    def add(self, out: str, content: bytes) -> None:
        self.outputs.append((out, content))
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        if content[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                for member in tar:
                    if file := tar.extractfile(member):
                        self.add(f"{out}:{member.name}", file.read())

    def found(self) -> Iterator[tuple[str, str, str]]:
        """Way in, way out, encoding. Only outputs with the beginning of a secret are searched for whole secrets."""
        stems = {form.encode() for stem in STEMS for forms in ENCODINGS.values() for form in forms(stem)}
        suspects = [(out, content) for out, content in self.outputs if any(stem in content for stem in stems)]
        for way, secret in self.secrets.items():
            assert secret.startswith(STEMS)
            for encoding, forms in ENCODINGS.items():
                needles = {form.encode() for form in forms(secret)}
                for out, content in suspects:
                    if any(needle in content for needle in needles):
                        yield way, out, encoding


class Echo(BaseHTTPRequestHandler):
    """Says the credentials back that it was sent: in its body."""

    authorizations: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        sent = self.headers.get("Authorization", "")
        self.authorizations.append(sent)
        plain = base64.b64decode(sent.partition(" ")[2] or "").decode("utf-8", "replace")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{plain.partition(':')[2]} {sent} is not welcome\n".encode())

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None: ...


Call = Callable[[tuple[str, ...], Path, dict[str, str]], "subprocess.CompletedProcess[str]"]


def call_bench(words: tuple[str, ...], folder: Path, environ: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchhouse", *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, encoding="utf-8", check=False)


@dataclass
class House:
    """A workspace, and how bench is called in it."""

    root: Path
    search: Search
    environ: dict[str, str]
    call: Call
    commands: Counter[str] = field(default_factory=Counter)

    def bench(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        done = self.call(words, self.root / "ws", self.environ)
        name = " ".join(word for word in words[:2] if word.isalpha())
        self.commands[name] += 1
        self.search.add(f"stdout of {name}", done.stdout.encode())
        self.search.add(f"stderr of {name}", done.stderr.encode())
        if done.returncode not in codes:
            raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout


def make_house(root: Path, search: Search, call: Call) -> House:
    for name in ("ws/recipes", "site/telltale-1.0.dist-info", "tmp", "cache", "other", "home", "keys-of-s3"):
        (root / name).mkdir(parents=True)
    (root / "site" / "telltale.py").write_text(EXPERIMENT)
    info = root / "site" / "telltale-1.0.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: telltale\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[benchhouse.experiments]\ntelltale = telltale:telltale\n")
    recipe = {
        "name": "echo", "program": ["python3"], "parameters": {"password": None},
        "command": ["{python}", "-u", "{folder}/server.py", "{port}", "{password}", "{secret}"],
        "files": {"server.py": SERVER},
        "environment": {"ECHO_TOKEN": "$ECHO_TOKEN"}, "endpoint": "http://me:{secret}@{host}:{port}",
    }  # fmt: skip
    (root / "ws" / "recipes" / "echo.yaml").write_text(json.dumps(recipe))
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("BENCH", "SLURM", "AWS", "PG"))}
    environ = kept | {
        "PYTHONPATH": str(root / "site"), "BENCH_CACHE_DIR": str(root / "cache"), "TMPDIR": str(root / "tmp"),
        "SEEN": str(root / "seen"), "NO_COLOR": "1", "BENCH_KEYS_DIR": str(root / "keys"), "HOME": str(root / "home"),
    }  # fmt: skip
    return House(root, search, environ, call)


def scenario(house: House, port: int) -> dict[str, Any]:
    """One that takes a secret in every way."""
    plant, environ = house.search.plant, house.environ
    named = {
        "TARGET": "target.password", "HEADER": "target.headers", "URL_PASSWORD": "target.url",
        "LISTED_TOKEN": "a list in workload", "AXIS": "an axis", "ENV": "environment",
        "OUTSIDE_PASSWORD": "services.endpoint", "ECHO_PARAMETER": "parameter of a server",
        "KEPT_PARAMETER": "parameter of an attached server", "ECHO_TOKEN": "environment of a recipe",
        "PROM_PASSWORD": "monitors.prometheus.url",
        "AWS_SECRET_ACCESS_KEY": "AWS_SECRET_ACCESS_KEY", "PGPASSWORD": "PGPASSWORD",
        "SPARK": "spark.conf", "RAY": "ray.runtime_env",
    }  # fmt: skip
    for variable, way in named.items():
        environ[variable] = plant(way)
    for variable, way in (("WHOLE_URL", "a variable with the target's address"), ("PROM_URL", "one of a monitor")):
        environ[variable] = f"http://me:{plant(way).replace(' ', '')}@127.0.0.1:{port}/metrics"
        house.search.secrets[way] = house.search.secrets[way].replace(" ", "")
    credentials = house.root / "keys-of-s3" / "credentials"
    lines = [
        f"{name} = {plant(f'{name} of a credentials file')}" for name in ("aws_secret_access_key", "aws_access_key_id")
    ]
    credentials.write_text("\n".join(["[default]", *lines]), encoding="utf-8")
    return {
        "scenario": "told", "experiment": "telltale", "repetitions": 5,
        "target": {
            "name": "t", "password": "$TARGET", "credentials_file": str(credentials),
            "headers": {"Authorization": "Bearer $HEADER"},
            "url": f"http://me:$URL_PASSWORD@127.0.0.1:{port}", "whole": "$WHOLE_URL", "outside": "service:outside",
        },
        "workload": {"given": {"argv": ["-H", "Authorization: Bearer $LISTED_TOKEN"]}},
        "axes": [{"grid": {"token": ["$AXIS"]}}],
        "environment": {"DB_PASSWORD": "$ENV"},
        "services": {
            "outside": {"endpoint": f"http://me:$OUTSIDE_PASSWORD@127.0.0.1:{port}"},
            "inside": {"recipe": "echo", "parameters": {"password": "$ECHO_PARAMETER"}},
            "kept": {"recipe": "echo", "mode": "attached", "parameters": {"password": "$KEPT_PARAMETER"}},
        },
        "monitors": {
            "interval": 0.1,
            "prometheus": [{"url": f"http://me:$PROM_PASSWORD@127.0.0.1:{port}/metrics"}, {"url": "$PROM_URL"}],
        },
        "spark": {"conf": {"spark.hadoop.fs.s3a.secret.key": "$SPARK"}},
        "ray": {"runtime_env": {"env_vars": {"HF_TOKEN": "$RAY"}}},
    }  # fmt: skip


def use_everything(house: House, port: int) -> None:
    """Run it, and call every command that writes or prints what was kept."""
    workspace, bench = house.root / "ws", house.bench
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
        subprocess.run(["git", "-C", str(workspace), *words], check=True, env=house.environ)
    good = scenario(house, port)
    (workspace / "told.yaml").write_text(json.dumps(good))
    bad = good | {"scenario": "failed", "repetitions": 1, "workload": good["workload"] | {"fail": True}}
    (workspace / "failed.yaml").write_text(json.dumps(bad))
    for words in (["validate"], ["plan"], ["plan", "--json"], ["run"], ["show"]):
        bench(*words[:1], *(["told.yaml"] if words[0] != "show" else ["@last"]), *words[1:])
    bench("run", "failed.yaml", "--json", codes=(1,))
    bench("run", "failed.yaml", codes=(1,))
    runs = json.loads(bench("query", "--json", "SELECT run_id FROM benchmark_run_fact WHERE scenario = 'told'"))
    run = runs["rows"][0]["run_id"]
    again = next((workspace / "results" / "told").glob("*/effective_config.yaml"))
    (workspace / "again.yaml").write_text(again.read_text().replace("scenario: told", "scenario: again"))
    bench("run", "again.yaml")
    tables = json.loads(bench("query", "--json", "SELECT DISTINCT table_name AS t FROM information_schema.tables"))
    for row in tables["rows"]:
        bench("query", "--json", f'SELECT * FROM "{row["t"]}"')
    bench("query", "--csv", "SELECT * FROM trial_fact")
    for words in (
        ["report"], ["report", run], ["status"], ["status", "--json"], ["logs", "tail", run], ["verify", run],
        ["logs", "get", run, "-o", "logs.tar.gz"], ["trace", f"{run}:x"], ["trace", f"{run}:x", "--json"],
        ["show", run, "--json"], ["why", run], ["list", "targets"], ["evidence", "push", "../store"],
        ["warehouse", "push", "../other"],
        *(["export", run, "--as", kind] for kind in ("bencher", "google-benchmark", "openmetrics")),
        ["export", run, "--as", "github-action-benchmark", "-o", "../exported"],
    ):  # fmt: skip
        bench(*words, codes=(0, 1, 2, 3, 4))
    claim = bench("claim", "make", f"{run}:x", "--realism").strip()
    bench("claim", "export", claim, "--with-raw", "-o", "claim.tar")
    bench("claim", "show", claim, "--json")
    for kind in ("croissant", "ro-crate"):
        bench("export", "claim.tar", "--as", kind)


def use_the_rest(house: House, port: int) -> None:
    """Ways in that are no scenario."""
    workspace, bench, plant = house.root / "ws", house.bench, house.search.plant
    house.environ["HOOK"] = (
        f"http://me:{plant('alarms', odd=False)}@127.0.0.1:{port}/x/{plant('path of a hook', odd=False)}"
    )
    house.environ["DEAD_HOOK"] = house.environ["HOOK"].replace(f":{port}", ":9")
    channels = {"me": {"webhook": "$HOOK"}, "dead": {"webhook": "$DEAD_HOOK"}}
    rule = {"name": "slow", "case": "told", "metric": "x", "above": 0.5, "tell": ["me", "dead"]}
    (workspace / "alarms.yaml").write_text(json.dumps({"alarms": [rule], "channels": channels}))
    for words in (["check"], ["try", "me"], ["try", "dead"], ["log"], ["log", "--json"]):
        bench("alarms", *words, codes=(0, 1, 2, 3))
    (workspace / "alarms.yaml").unlink()
    house.environ["STARTED"] = plant("bench servers start")
    started = json.loads(bench("servers", "start", "echo", "-p", "password=$STARTED", "--json"))
    for words in (
        ["list"],
        ["list", "--json"],
        ["show", started["id"]],
        ["logs", started["id"]],
        ["stop", started["id"]],
    ):
        bench("servers", *words, codes=(0, 1, 2))
    house.environ["ENGINE_PASSWORD"] = plant("engine by variable")
    house.environ["ENGINE"] = f"postgresql://me:{plant('address of an engine', odd=False)}/x@127.0.0.1:9/db"
    for address in ("postgresql://me:$ENGINE_PASSWORD@127.0.0.1:9/db", "$ENGINE"):
        bench("warehouse", "push", address, codes=(1, 2))
        bench("query", "--engine", address, "SELECT 1", codes=(1, 2))
    secret = plant("endpoint of a store", odd=False)
    bench("evidence", "push", "s3://b/p", "--endpoint", f"http://me:{secret}@127.0.0.1:9", codes=(1, 2))
    for name, text in PLAIN.items():
        (house.root / "plain").mkdir(exist_ok=True)
        path = house.root / "plain" / name
        path.write_text(text % plant(f"plain text in {name}", odd=False))
        bench("validate", str(path), codes=(2,))
        bench("plan", str(path), "--json", codes=(2,))
    site = house.root / "plain" / "site.yaml"
    site.write_text(f"site: here\nenvironment: {{HF_TOKEN: {plant('plain text in a site', odd=False)}}}\n")
    bench("plan", "told.yaml", "--site", str(site), codes=(2,))


def check_arrival(house: House, echo: list[str]) -> list[str]:
    """Secrets that did not reach the experiment, the servers or the endpoint: nothing can be said of those."""
    told = [json.loads(line) for line in (house.root / "seen").read_text().splitlines()]
    sent = [base64.b64decode(item.partition(" ")[2]).decode() for item in echo if item]
    heard = "\n".join([*told, *sent])
    unused = (
        "spark",
        "ray",
        "engine",
        "address of an engine",
        "endpoint of a store",
        "plain",
        "path of a hook",
    )
    missing = []
    for way, secret in house.search.secrets.items():
        in_address = "".join(quote(sign) if sign in "?#@[] " else sign for sign in secret).replace("/", "%2F")
        if secret not in heard and in_address not in heard and not way.startswith(unused):
            missing.append(way)
    return missing


def search_everywhere(root: Path, call: Call = call_bench) -> dict[str, Any]:
    """The figures, from a new folder; `call` is how `bench` is called."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        house = make_house(root, Search(), call)
        port = server.server_address[1]
        use_everything(house, port)
        use_the_rest(house, port)
        server.shutdown()
    for number, made_up in enumerate(sorted(made_up_secrets(root))):
        house.search.secrets[f"made up for a server {number}"] = made_up
    files = [path for name in ("ws", "store", "other", "cache", "tmp", "home") for path in (root / name).rglob("*")]
    for path in files:
        if path.is_file() and not path.is_symlink():
            house.search.add(str(path.relative_to(root)), path.read_bytes())
    return {
        "ways_in": len(house.search.secrets), "ways_out": len(house.search.outputs), "encodings": list(ENCODINGS),
        "bytes": sum(len(content) for _, content in house.search.outputs), "commands": sum(house.commands.values()),
        "found": [
            {"way_in": way, "way_out": out, "encoding": encoding} for way, out, encoding in sorted(house.search.found())
        ],
        "not_arrived": check_arrival(house, Echo.authorizations),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.add_argument("--keep", type=Path, help="Work in this new folder, and leave it.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        result = search_everywhere((asked.keep or Path(temporary) / "house").absolute())
    if asked.json:
        print(json.dumps(result, indent=2))
    else:
        counts = f"{result['ways_in']} ways in, {result['ways_out']} files and outputs, {result['bytes']:,} bytes"
        print(f"{counts}, {result['commands']} commands, {len(ENCODINGS)} encodings: {len(result['found'])} found")
        for item in result["found"]:
            print(f"  {item['way_in']}, {item['encoding']}: in {item['way_out']}")
        for way in result["not_arrived"]:
            print(f"  {way}: did not reach who needs it")
    return 1 if result["found"] or result["not_arrived"] else 0


def made_up_secrets(root: Path) -> set[str]:
    """{secret} of the recipes, as the servers were given it."""
    told = [json.loads(line) for line in (root / "seen").read_text().splitlines()]
    return {text for text in told if text.startswith("made-up-")}


if __name__ == "__main__":
    sys.exit(main())
