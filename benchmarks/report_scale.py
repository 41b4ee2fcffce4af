"""What a sweep of 1,000 points costs to run, to report and to look at; and the report of 10,000 points.

    python benchmarks/report_scale.py [--points 1000] [--grown 10000] [--experiment function|command] [--json]

1,000 points x 2 trials go through the real `bench run`: of a packaged function that does nothing, or of the `command`
experiment with `true` (40 statistics a point). The 10,000 points are rows made of those of that run, stored by the real
writer, and reported in a process of their own. CPU is user and system time of all ended descendants. Pages are opened
in headless Chromium (playwright, /usr/bin/chromium): first paint, then a sort and a filter until the table is drawn;
`sort_cpu_s` is the CPU time of the page's main thread for a sort, which a busy machine does not stretch.
`terminal_lines` counts stdout where it is no terminal; notes on stderr are not in it.

Exits 1 when a bar is missed.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from noop_trials import cpu_s, package

from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.warehouse.ingest import open_catalog, store
from benchhouse.warehouse.rows import read_folder

CHROMIUM = Path("/usr/bin/chromium")
TINY = "def tiny(a: int, b: int):\n    return {'score': a * 0.7 + (b % 7) * 1.3, 'cost': 100 / a + b}\n"
_SORTS = 5
GROWN = "20260101-000000-grown"
BARS = {
    "report_cpu_s": 3.0, "report_bytes": 2e6, "terminal_lines": 50, "first_paint_s": 2.0, "sort_s": 0.2,
    "filter_s": 0.2, "trial_cpu_ms": 50.0, "folder_bytes": 20_000, "grown_cpu_s": 30.0, "grown_bytes": 2e7,
    "grown_first_paint_s": 20.0,
}  # fmt: skip
REPORT = (
    "import sys; from pathlib import Path; from benchhouse.report.data import gather; "
    "from benchhouse.report.files import write_report; from benchhouse.schema.layout import WorkspaceFolder; "
    "w = WorkspaceFolder(Path(sys.argv[1])); print(write_report(w, gather(w, [sys.argv[2]])))"
)


def main() -> int:
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="report-scale-") as name:
        root = Path(name)
        package(root / "site", "tiny", TINY, "[benchhouse.experiments]\ntiny = tiny:tiny\n")
        figures = measure(root, options)
    missed = [key for key, bar in BARS.items() if key in figures and figures[key] > bar]
    if options.json:
        print(json.dumps({"figures": figures, "bars": BARS, "missed": missed}, indent=2))
    else:
        for key, value in figures.items():
            bar = f"  at most {BARS[key]:g}{', MISSED' if key in missed else ''}" if key in BARS else ""
            print(f"{key:22} {value:,.4g}{bar}" if isinstance(value, float) else f"{key:22} {value}{bar}")
    return 1 if missed else 0


def measure(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    environment = os.environ | {
        "PYTHONPATH": str(root / "site"),
        "BENCH_CACHE_DIR": str(root / "cache"),
        "PYTHONDONTWRITEBYTECODE": "",  # an installed package is compiled once
    }
    workspace = WorkspaceFolder(root / "ws")
    workspace.root.mkdir()
    scenario = root / "ws" / "sweep.yaml"
    scenario.write_text(json.dumps(_scenario(options.experiment, options.points)))
    bench = [sys.executable, "-m", "benchhouse", "-C", str(workspace.root)]

    def run(*arguments: str) -> tuple[str, float]:
        before = cpu_s()
        done = subprocess.run([*bench, *arguments], env=environment, check=True, capture_output=True, text=True)
        return done.stdout, cpu_s() - before

    shown, run_s = run("run", "--new", str(scenario))
    trials = sorted(path.parent for path in (workspace.results / "sweep").glob("*/manifest.json"))
    page, report_s = run("report")
    figures: dict[str, Any] = {
        "points": options.points,
        "trials": len(trials),
        "trial_cpu_ms": run_s / len(trials) * 1e3,
        "folder_bytes": _on_disk(trials) // len(trials),
        "terminal_lines": len(shown.splitlines()),
        "report_cpu_s": report_s,
        "report_bytes": Path(page.strip()).stat().st_size,
        "compare_cpu_s": run("compare", "@last", "@last")[1],
        "status_cpu_s": run("status", "@last")[1],
        **look(Path(page.strip()), ""),
    }
    if options.grown:
        figures |= grow(workspace, WorkspaceFolder(root / "grown"), trials, options.grown, environment)
    return figures


def _scenario(experiment: str, points: int) -> dict[str, Any]:
    rows = max(1, points // 40)
    axes = [{"range": {"from": 1, "to": end, "step": 1}} for end in (rows, points // rows)]
    if experiment == "function":
        return {
            "scenario": "sweep",
            "experiment": "tiny",
            "workload": dict(zip("ab", axes, strict=True)),
            "repetitions": 2,
        }
    return {
        "scenario": "sweep", "experiment": "command", "target": {"argv": ["true", "{a}", "{b}"]},
        "workload": {"executions": 2, "warmup": 0}, "repetitions": 2,
        "axes": [{"grid": {f"values.{name}": values for name, values in zip("ab", axes, strict=True)}}],
    }  # fmt: skip


def _on_disk(folders: list[Path]) -> int:
    """As `du` counts: blocks, folders included; a file that several folders have by hard links is one."""
    stats = [path.lstat() for folder in folders for path in [folder, *folder.rglob("*")]]
    return sum({(stat.st_dev, stat.st_ino): stat.st_blocks * 512 for stat in stats}.values())


def grow(
    source: WorkspaceFolder, target: WorkspaceFolder, trials: list[Path], points: int, environment: dict[str, str]
) -> dict[str, Any]:
    """The report of many points, whose rows are made of real ones; one folder is there to speak for the run."""
    target.root.mkdir()
    open_catalog(target).close()
    templates = [read_folder(source, TrialFolder(folder)) for folder in trials[:200]]
    made = {}
    for at in range(2 * points):
        model, a, b = templates[at % len(templates)], at // 200 + 1, at // 2 % 100 + 1
        digest = hashlib.sha256(f"{a}/{b}".encode()).hexdigest()
        name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{GROWN}/{at}"))
        own = {"trial_id": name, "run_id": GROWN, "instance_digest": digest, "repetition": at % 2}
        case = {"benchmark_case_id": digest[:16], "workload_spec_digest": digest}
        words = {"axes": json.dumps({"a": a, "b": b}), "point": f"a={a} b={b}", "folder": f"results/sweep/{name}"}
        measured = [row | own | {k: v for k, v in case.items() if k in row} for row in model.measurements]
        made[name] = dataclasses.replace(model, trial=model.trial | own | case | words, measurements=measured)
    with open_catalog(target) as catalog:
        store(catalog, GROWN, made, [])
    before = cpu_s()
    done = subprocess.run(
        [sys.executable, "-c", REPORT, str(target.root), GROWN],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    page = Path(done.stdout.strip())
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    return {
        "grown_points": points,
        "grown_cpu_s": cpu_s() - before,
        "grown_bytes": page.stat().st_size,
        "largest_process_mb": peak_mb,
        **look(page, "grown_"),
    }


def look(page: Path, prefix: str) -> dict[str, float]:
    """Seconds in a browser; nothing where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {}
    if not CHROMIUM.exists():
        return {}
    timed = (
        "async ([act, argument]) => { const began = performance.now(); "
        "if (act === 'sort') document.querySelector('#points th:last-child button').click(); "
        "else { const box = document.getElementById('filter'); box.value = argument; "
        "box.dispatchEvent(new Event('input')); } "
        "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); "
        "return (performance.now() - began) / 1000; }"
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1400, "height": 900})
        tab.goto(page.as_uri())
        tab.wait_for_selector("#points tbody tr")
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime / 1000"
        figures = {
            f"{prefix}first_paint_s": float(tab.evaluate(paint)),
            f"{prefix}sort_s": float(tab.evaluate(timed, ["sort", ""])),
            f"{prefix}filter_s": float(tab.evaluate(timed, ["filter", "b=7"])),
        }
        tab.evaluate(timed, ["filter", ""])
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = _main_thread_s(session)
        for _ in range(_SORTS):
            tab.evaluate(timed, ["sort", ""])
        figures[f"{prefix}sort_cpu_s"] = (_main_thread_s(session) - before) / _SORTS
        browser.close()
    return figures


def _main_thread_s(session: Any) -> float:
    """CPU time of the page's main thread so far, which a busy machine does not stretch."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1000, help="Of the real run; a multiple of 40.")
    parser.add_argument("--grown", type=int, default=10_000, help="Points of the made-up run; 0 for none.")
    parser.add_argument("--experiment", choices=["function", "command"], default="command")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
