"""The page of licenses lists what the lock holds, and a license that does not fit is found."""

import contextlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tables import check_table

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import audit_lock
from audit_lock import Package


@contextlib.contextmanager
def fake_pypi(answers):
    """A server with these answers; any other path is 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            found = answers.get(self.path)
            body = json.dumps(found).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_the_page_lists_each_package_of_the_lock_with_a_license_that_fits(capsys):
    assert audit_lock.check() == 0, capsys.readouterr().out
    listed = audit_lock.listed_packages()
    assert {item.installed_by for item in listed if item.name in ("pydantic", "chromadb", "zizmor")} == {
        "core", "extra", "development",
    }  # fmt: skip


def test_a_package_of_the_lock_that_the_page_lacks_is_reported(monkeypatch, tmp_path, capsys):
    shorter = tmp_path / "licenses.md"
    lines = audit_lock.PAGE.read_text().splitlines()
    shorter.write_text("\n".join(line for line in lines if not line.startswith("| pydantic |")) + "\n")
    monkeypatch.setattr(audit_lock, "PAGE", shorter)
    assert audit_lock.check() == 1 and "pydantic" in capsys.readouterr().out


@check_table(
    "license, fits",
    [
        ("MIT", True),
        ("GPL-2.0-only OR MIT", True),
        ("LGPL-3.0-only", True),
        ("GNU Lesser General Public License v3 or later (LGPLv3+)", True),
        ("MPL-2.0", True),
        ("GPLv2", False),
        ("AGPL-3.0-or-later", False),
        ("MIT AND GPL-3.0-only", False),
        ("GNU General Public License v3 (GPLv3)", False),
        ("Other/Proprietary License", False),
        ("BUSL-1.1", False),
        ("", False),
    ],
)
def test_a_license_that_binds_those_who_ship_a_package_does_not_fit(license, fits):
    assert (not list(audit_lock.misfits([Package("x", "1", "extra", license)]))) == fits
    assert not list(audit_lock.misfits([Package("x", "1", "development", license)]))


def test_pypi_is_asked_for_the_locked_version_and_its_answer_is_reported_once(monkeypatch):
    answers = {
        "/exact/1/json": {"info": {"version": "1", "license_expression": "MIT"}, "vulnerabilities": [
            {"id": "GHSA-1", "aliases": ["CVE-1", "PYSEC-1"], "fixed_in": ["2"]},
            {"id": "PYSEC-1", "aliases": ["CVE-1", "GHSA-1"], "fixed_in": ["2"]},
            {"id": "PYSEC-2", "aliases": [], "fixed_in": [], "withdrawn": "2026-01-01"},
        ]},
        "/newer/json": {"info": {"version": "2", "classifiers": ["License :: OSI Approved :: MIT License"]},
                        "vulnerabilities": [{"id": "GHSA-9", "aliases": [], "fixed_in": []}]},
    }  # fmt: skip
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with fake_pypi(answers) as address:
        monkeypatch.setattr(audit_lock, "PYPI", address)
        exact, newer, missing = (Package(name, "1", "core") for name in ("exact", "newer", "missing"))
        for package in (exact, newer, missing):
            audit_lock.ask_pypi(package)
    assert exact.vulnerabilities == {"CVE-1": "fixed in 2"} and exact.license == "MIT" and not exact.problem
    assert newer.license == "MIT License" and not newer.vulnerabilities and newer.problem
    assert missing.problem and not missing.license
