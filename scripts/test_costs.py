"""Print what the tests cost: the most expensive tests and shared fixtures, and each folder against its budget.

    python scripts/test_costs.py COSTS.jsonl [--top N] [--folder tests/serve] [--budgets] [--quick]

`make test` and `make quick` write such a file. `--budgets` exits with code 1 if a folder needs more CPU time than
`tests/budgets.toml` allows. `--quick` prints only the tests that need much more than one second of CPU time, and
exits with code 1 if there are any: such a test is marked as slow, or moved out of the quick folders. CPU time counts
and wall time does not, because other work on the machine lengthens only the latter.
"""

import argparse
import json
import os
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SLOW_TEST_S = 20
QUICK_TEST_CPU_S = 1.5  # 1 s, and a tolerance because other work on the machine slows the cores


@dataclass
class Cost:
    """Wall and CPU seconds, summed over what has been added."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    count: int = 0
    reason: str = ""

    def add(self, record: dict, sign: int = 1) -> None:
        self.wall_s += sign * record["wall_s"]
        self.cpu_s += sign * record["cpu_s"]
        self.count += sign


def read_costs(lines: Iterable[str], folder: str) -> tuple[dict[str, Cost], dict[str, Cost], dict[str, Cost]]:
    """Return the costs by test, by shared fixture, and by folder. A test's cost excludes its shared fixtures."""
    tests, fixtures, folders = (defaultdict(Cost) for _ in range(3))
    for record in map(json.loads, lines):
        name = record["test"]
        if not name.startswith(folder):
            continue
        tests[name].add(record)
        tests[name].reason = record.get("reason", "")
        folders[folder_of(name)].add(record)
        for fixture in record["fixtures"]:
            tests[name].add(fixture, sign=-1)
            fixtures[f"{fixture['fixture']} ({fixture['scope']})"].add(fixture)
    for cost in folders.values():
        cost.count = 0
    for name in tests:
        folders[folder_of(name)].count += 1
    return tests, fixtures, folders


def folder_of(test: str) -> str:
    """Return `tests/NAME` for a test in that folder or below it, and `tests` for a test directly in `tests`."""
    parts = test.partition("::")[0].split("/")[:-1]
    return "/".join(parts[:2])


def print_table(title: str, costs: dict[str, Cost], top: int) -> None:
    print(f"\n{title}\n   wall s    CPU s  count")
    for name, cost in sorted(costs.items(), key=lambda item: -item[1].wall_s)[:top]:
        print(f"{cost.wall_s:9.1f}{cost.cpu_s:9.1f}{cost.count:7}  {name}{cost.reason and f'  [{cost.reason}]'}")


def check_budgets(folders: dict[str, Cost]) -> list[str]:
    """Return one line for each folder that exceeds its budget or has none."""
    budgets = tomllib.loads((ROOT / "tests" / "budgets.toml").read_text())["cpu_s"]
    return [
        f"{name} used {cost.cpu_s:.0f} CPU seconds; its budget is {budgets.get(name, 0)}"
        for name, cost in sorted(folders.items())
        if cost.cpu_s > budgets.get(name, 0)
    ]


def report_too_slow_for_quick(tests: dict[str, Cost]) -> int:
    """Print the tests that need too much CPU time for `make quick`, and return the exit code."""
    too_slow = {name: cost for name, cost in tests.items() if cost.cpu_s > QUICK_TEST_CPU_S}
    if too_slow:
        print_table(
            f"Tests that need over {QUICK_TEST_CPU_S} s of CPU time; mark them as slow", too_slow, len(too_slow)
        )
    return 1 if too_slow else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="what pytest --costs FILE wrote")
    parser.add_argument("--top", type=int, default=40, help="how many tests and fixtures to print (40)")
    parser.add_argument("--folder", default="", help="only tests whose name starts with this")
    parser.add_argument("--budgets", action="store_true", help="exit with code 1 if a folder exceeds its budget")
    parser.add_argument("--quick", action="store_true", help="exit with code 1 if a test needs over 1.5 s of CPU time")
    options = parser.parse_args()
    with options.file.open() as lines:
        tests, fixtures, folders = read_costs(lines, options.folder)
    for cost in tests.values():
        cost.count = 1
    if options.quick:
        return report_too_slow_for_quick(tests)
    print_table(f"The {options.top} most expensive tests", tests, options.top)
    print_table(f"The {options.top} most expensive shared fixtures", fixtures, options.top)
    print_table("Folders", folders, len(folders))
    slow = [name for name, cost in tests.items() if cost.wall_s > SLOW_TEST_S and not cost.reason]
    if slow:
        print(f"\n{len(slow)} tests took over {SLOW_TEST_S} s and give no reason (@pytest.mark.slow('reason')):")
        print(*sorted(slow), sep="\n")
    cpu_s = sum(cost.cpu_s for cost in folders.values())
    print(f"\n{len(tests)} tests: {cpu_s / 60:.1f} CPU minutes on a machine with {os.cpu_count()} cores")
    exceeded = check_budgets(folders) if options.budgets else []
    for line in exceeded:
        print(f"over budget: {line}", file=sys.stderr)
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
