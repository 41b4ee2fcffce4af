"""A real Prometheus and a real node exporter with its textfile collector, from Debian, on free loopback ports.

with Prometheus(folder, textfiles=..., rules=[...]) as server:
    server.query("benchhouse_run_trials_planned")
"""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from services.kin import end_with_parent
from services.triton import free_ports

PROGRAMS = ("prometheus", "promtool", "prometheus-node-exporter")
needs_prometheus = pytest.mark.skipif(
    any(shutil.which(name) is None for name in PROGRAMS),
    reason="Debian's prometheus and prometheus-node-exporter are not installed (scripts/install-test-deps.sh)",
)
_CONFIG = """global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}
rule_files: {rules}
scrape_configs:
  - job_name: node
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
_BENCH = """  - job_name: bench
    scrape_interval: 2s
    scrape_timeout: 2s
    authorization: {{credentials: "{token}"}}
    static_configs: [{{targets: ["{address}"]}}]
"""


def promtool(*arguments: object, text: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["promtool", *map(str, arguments)], input=text, capture_output=True, text=True, check=False)


def is_clean(text: str) -> None:
    """promtool has nothing to say about a page of metrics, not even in its linter."""
    done = promtool("check", "metrics", text=text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done


class Prometheus:
    """Scrapes a node exporter, which reads text files. All that it keeps is below `folder`."""

    def __init__(self, folder: Path, textfiles: Path, rules: list[Path], scrape: tuple[str, str] | None = None) -> None:
        """`scrape`: address and token of a `bench serve` that is scraped too, as the job `bench`."""
        self.folder, self.textfiles, self.rules, self.scrape = folder, textfiles, rules, scrape
        self.port, self.exporter_port = free_ports(2)
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Prometheus":
        config = self.folder / "prometheus.yml"
        rules = json.dumps([str(path) for path in self.rules])
        jobs = _BENCH.format(address=self.scrape[0], token=self.scrape[1]) if self.scrape else ""
        config.write_text(_CONFIG.format(port=self.exporter_port, rules=rules) + jobs)
        self._start(
            "prometheus-node-exporter",
            "--collector.disable-defaults",
            "--collector.textfile",
            f"--collector.textfile.directory={self.textfiles}",
            f"--web.listen-address=127.0.0.1:{self.exporter_port}",
        )
        self._start(
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self.folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        )
        try:
            self._wait(self.exporter_port, "/metrics")
            self._wait(self.port, "/-/ready")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query; raises with Prometheus' own words where it refuses the expression."""
        where = f"http://127.0.0.1:{self.port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(where, timeout=10) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return found
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error

    def value(self, expression: str, limit_s: float = 15) -> float:
        """The one value of an expression, as soon as there is one."""
        deadline = time.monotonic() + limit_s
        while not (found := self.query(expression)):
            assert time.monotonic() < deadline, f"no value of {expression} within {limit_s:g} s"
            time.sleep(0.1)
        assert len(found) == 1, found
        return float(found[0]["value"][1])

    def rule_groups(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/rules", timeout=10) as answer:
            groups: list[dict[str, Any]] = json.load(answer)["data"]["groups"]
            return groups

    def _start(self, program: str, *arguments: str) -> None:
        with (self.folder / f"{program}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen([program, *arguments], stdout=log, stderr=log, preexec_fn=end_with_parent)
            )

    def _wait(self, port: int, path: str) -> None:
        deadline = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                assert time.monotonic() < deadline, f"nothing answers on port {port}{path}"
                time.sleep(0.05)
