"""Servers that are started for a trial."""

import sys
import time
from pathlib import Path

import pytest
from laboratory import wait_until
from mocks.llm import build

from benchhouse.http.client import HttpClient, NoAnswer
from benchhouse.processes.programs import find_program
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.recipe import Ready, Recipe
from benchhouse.worker.output import Capture
from benchhouse.worker.services import Services


def mock():
    """The command of the mock server, which is compiled here if need be."""
    return (str(build()), "--port", "{port}")


@pytest.fixture
def services(tmp_path):
    """With logs in `tmp_path / "logs"`; ended after the test."""
    logs = Capture.begin(tmp_path, "t", streams=())
    made = Services(tmp_path / "services", logs)
    with logs.pumping():
        yield made
        made.close()
    logs.close()


def recipe(command, **more):
    asked = {"ready": Ready(kind="http", url="http://127.0.0.1:{port}/mock/stats")} | more
    return Recipe(
        name="server",
        program=(command[0],),
        command=("{program}", *command[1:]),
        endpoint="http://127.0.0.1:{port}",
        **asked,
    )


def is_there(pid):
    """As a process that still does something; nobody may have buried it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def script(text):
    return (
        sys.executable,
        "-c",
        f"import http.server, os, signal, subprocess, sys, time\nport = int(sys.argv[1])\n{text}",
        "{port}",
    )


SERVE = """
class Up(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", port), Up)
print("serving as", os.getpid(), flush=True)
"""


def pids_told(folder):
    log = folder / "logs" / "server.log"
    return [int(line.split()[-1]) for line in log.read_text().splitlines() if " as " in line]


def test_a_server_is_up_until_it_is_ended_and_its_folder_goes_with_it(services):
    service = services.start(recipe(mock()))
    assert service.endpoint.startswith("http://127.0.0.1:") and "{port}" not in service.endpoint
    assert service.start_s < 120 and service.folder.is_dir()
    client = HttpClient(timeout_s=10)
    assert client.get(f"{service.endpoint}/mock/stats").ok
    assert services.close() == ""
    assert not service.folder.exists()
    with pytest.raises(NoAnswer, match="refused"):
        client.get(f"{service.endpoint}/mock/stats")


def test_a_server_and_its_children_are_ended_though_they_resist(services, tmp_path):
    stubborn = script(
        SERVE + "child = subprocess.Popen(['sleep', '100'])\nprint('child as', child.pid, flush=True)\n"
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\nserver.serve_forever()"
    )
    services.start(recipe(stubborn))
    services.close()
    assert len(pids_told(tmp_path)) == 2
    wait_until(lambda: not any(map(is_there, pids_told(tmp_path))), "both to end")


def test_a_server_that_ended_by_itself_is_told_with_its_last_words(services):
    dying = script(SERVE + "server.handle_request()\nprint('out of memory', flush=True)\nsys.exit(3)")
    services.start(recipe(dying))
    time.sleep(0.3)
    said = services.close()
    assert "ended with 3 during the trial" in said and "out of memory" in said


def test_a_server_that_ends_before_it_is_ready_is_told_with_its_last_words(services):
    with pytest.raises(ExperimentFailed, match=r"(?s)server_died: .*ended with 2 before it was ready:.*no such model"):
        services.start(recipe(script("print('no such model')\nsys.exit(2)")))
    assert services.close() == ""


def test_a_server_that_is_never_ready_is_ended_and_told(services, tmp_path):
    loading = ("sh", "-c", "echo loading as $$; exec sleep 60")  # a shell starts in less time than Python
    ready = Ready(kind="http", url="http://127.0.0.1:{port}/health", timeout=0.5)
    with pytest.raises(ExperimentFailed, match=r"(?s)server_not_ready: .*not up within 0.5 s.*/health.*loading as"):
        services.start(recipe(loading, ready=ready))
    assert not any(map(is_there, pids_told(tmp_path)))


def test_a_server_that_answers_503_is_not_ready_yet(services):
    slow = SERVE.replace("self.send_response(200)", "self.send_response(200 if time.monotonic() > up else 503)")
    service = services.start(recipe(script(f"up = time.monotonic() + 0.6{slow}server.serve_forever()")))
    assert service.start_s > 0.5


def test_a_program_that_is_not_there_is_told_with_how_to_get_it(services):
    with pytest.raises(ExperimentFailed, match=r"no_such_program: .*'no-such-server' .* here; apt install it"):
        services.start(recipe(("no-such-server", "{port}"), install="apt install it"))


def test_environment_variables_reach_the_server(services):
    told = script("print('mode is', os.environ['MODE'])\nsys.exit(1)")
    with pytest.raises(ExperimentFailed, match=r"(?s)mode is quick"):
        services.start(recipe(told, environment={"MODE": "quick"}))


def test_what_prepares_a_server_runs_first_and_its_failure_is_told(services):
    steps = (("sh", "-c", "echo first > {folder}/made"), ("sh", "-c", "cat {folder}/made; echo second; exit 4"))
    with pytest.raises(ExperimentFailed, match=r"(?s)could not be prepared.*first\nsecond"):
        services.start(recipe(mock(), prepare=steps))


def test_files_of_a_recipe_are_written_with_their_places_filled_in(services):
    service = services.start(recipe(mock(), files={"settings.ini": "port={port}\nother={this}"}))
    port = service.endpoint.rpartition(":")[2]
    assert (service.folder / "settings.ini").read_text() == f"port={port}\nother={{this}}"


def test_two_servers_of_one_recipe_have_folders_and_logs_of_their_own(services):
    first, second = services.start(recipe(mock())), services.start(recipe(mock()))
    assert first.folder != second.folder and first.name != second.name and first.endpoint != second.endpoint


def test_a_server_that_refuses_root_is_somebody_else(services, tmp_path):
    services.start(
        recipe(script("print('I am', os.geteuid(), flush=True)" + SERVE + "server.serve_forever()"), refuses_root=True)
    )
    assert "I am 0\n" not in (tmp_path / "logs" / "server.log").read_text()


def test_a_program_is_found_in_an_installed_package():
    made = Recipe(name="x", program=("nowhere", "click:core.py"), command=("{program}",), endpoint="")
    with pytest.raises(ExperimentFailed, match="no_such_program"):  # it is there, and can't be run
        find_program(made)


def test_a_place_that_nobody_fills_is_refused():
    with pytest.raises(ValueError, match=r"\{prot\} in 'http://127.0.0.1:\{prot\}' is none of"):
        Recipe(name="x", program=("x",), command=("x",), endpoint="http://127.0.0.1:{prot}")
