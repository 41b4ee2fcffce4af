"""A server on a laboratory's workspace: the real process, asked over HTTP."""

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from asking import address, resize
from laboratory import Lab

Serve = Callable[..., str]


@pytest.fixture
def serve(lab: Lab) -> Iterator[Serve]:
    """`serve(*options)` starts `bench serve` and returns its address, without the slash at the end.

    The servers are forks of a process that has imported `bench`, except with `fresh=True`. `serve.process` is the last
    one that was started."""
    with ExitStack() as started:

        def start(*options: Any, fresh: bool = False) -> str:
            begin = lab.start if fresh else lab.fork
            process = start.process = begin("serve", "--port", "0", *options)  # type: ignore[attr-defined]
            started.callback(process.wait)
            started.callback(process.terminate)
            return address(process)

        yield start


CHROMIUM = Path("/usr/bin/chromium")
_AXE = "axe-core-4.10.3"


@dataclass
class Site:
    """A running server, and the workspace that it shows."""

    base: str
    lab: Lab


@pytest.fixture(scope="module")
def show() -> Iterator[Callable[..., Site]]:
    """`show(lab)` starts a server for all tests of a module."""
    with ExitStack() as started:

        def start(lab: Lab, *options: str) -> Site:
            process = lab.fork("serve", "--port", "0", *options)
            started.callback(process.wait)
            started.callback(process.terminate)
            return Site(address(process), lab)

        yield start


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip("no Chromium here")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The script that finds what is not accessible: npm's axe-core, kept in the cache of the tests."""
    cache = Path(os.environ.get("BENCH_TEST_CACHE") or Path.home() / ".cache" / "benchhouse-tests")
    kept = cache / f"{_AXE}.min.js"
    if not kept.exists():
        if not shutil.which("npm"):
            pytest.skip("no npm here")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            subprocess.run(["npm", "pack", "--silent", "axe-core@4.10.3"], cwd=folder, check=True, capture_output=True)
            with tarfile.open(Path(folder, f"{_AXE}.tgz")) as packed:
                source = packed.extractfile("package/axe.min.js")
                assert source
                Path(folder, "axe.js").write_bytes(source.read())
            Path(folder, "axe.js").rename(kept)
    return kept.read_text(encoding="utf-8")


@pytest.fixture
def accessible(axe: str) -> Callable[..., list[str]]:
    """What axe calls serious or critical on a page, each with the first element that is concerned; by all its rules, or
    by those that are named."""

    def violations(page: Any, *rules: str) -> list[str]:
        page.evaluate(axe)
        options: dict[str, Any] = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
        found = page.evaluate("options => axe.run(document, options).then((result) => result.violations)", options)
        return [
            f"{item['id']}: {item['nodes'][0]['html'][:200]} {item['nodes'][0]['failureSummary'][:300]}"
            for item in found
            if item["impact"] in ("serious", "critical")
        ]

    return violations


@pytest.fixture
def check_windows(accessible: Callable[..., list[str]]) -> Callable[[Any], list[str]]:
    """Problems of a loaded page in a wide window with light colors, and in a narrow window with dark colors."""

    def problems(page: Any) -> list[str]:
        found = []
        for width, scheme, rules in (
            (1280, "light", ()),
            (390, "dark", ("color-contrast", "scrollable-region-focusable")),
        ):
            page.emulate_media(color_scheme=scheme)
            if resize(page, width) > width:
                found.append(f"wider than {width}")
            found += accessible(page, *rules)
            if page.evaluate("document.documentElement.scrollHeight") >= 9000:
                found.append(f"a name fills the page at {width}")
        if page.locator("h1").count() != 1:
            found.append("not one h1")
        return found

    return problems


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page; afterwards no script may have failed, and nothing been asked of anybody else."""
    trouble: list[str] = []
    contexts = []

    def open_page(url: str, *, width: int = 1280, script: bool = True, scheme: str = "light", status: int = 200) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
        )
        contexts.append(context)
        page, home = context.new_page(), url.split("/", 3)[2]
        noted = trouble if status == 200 else []
        page.on("console", lambda message: noted.append(f"{message.text} {message.location['url']}"))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: None if f"//{home}/" in request.url else trouble.append(request.url))
        answer = page.goto(url)
        assert answer.status == status, f"{url}: {answer.status}"
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []
