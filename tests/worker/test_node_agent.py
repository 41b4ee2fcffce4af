"""Commands on another node, by its agent: what `srun` is used for, over real sockets between processes."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from laboratory import wait_until

from benchhouse.processes.python_command import python_command
from benchhouse.worker import node_call, nodes


class Agent:
    """The agent of a node `far`, and what a trial on `near` knows of it."""

    def __init__(self, folder: Path, **limits: object) -> None:
        self.list = folder / "nodes.json"
        own = {"BENCHHOUSE_NODE": "far", "BENCHHOUSE_ADDRESS": "127.0.0.1", "CUDA_VISIBLE_DEVICES": "7"}
        own["BENCHHOUSE_LIMITS"] = json.dumps(limits)
        self.process = subprocess.Popen(
            [*python_command(), "-m", "benchhouse.worker", "--agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | own | {"BENCHHOUSE_NODES": str(self.list)},
        )
        assert self.process.stdout
        self.port = json.loads(self.process.stdout.readline())["port"]
        self.list.touch(mode=0o600)
        self.introduce("right")
        self.environment = os.environ | {"BENCHHOUSE_NODES": str(self.list), "BENCHHOUSE_NODE": "near", "COLOUR": "red"}

    def introduce(self, secret: str, port: int = 0) -> Path:
        places = [{"name": "near", "address": "127.0.0.1"}]
        places += [{"name": "far", "address": "127.0.0.1", "port": port or self.port}]
        self.list.write_text(json.dumps({"secret": secret, "nodes": places}))
        return self.list

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-I", "-S", node_call.__file__, "far", *words]

    def run(self, *words: str, **more) -> "subprocess.CompletedProcess[bytes]":
        more = {"capture_output": True, "env": self.environment, "timeout": 60} | more
        return subprocess.run(self.command(*words), check=False, **more)

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self.command(*words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment
        )

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_a_command_has_our_environment_but_the_node_s_own_name_and_cards(agent):
    done = agent.run("sh", "-c", 'echo "$COLOUR $BENCHHOUSE_NODE $CUDA_VISIBLE_DEVICES"; pwd >&2; exit 3')
    assert done.stdout == b"red far 7\n" and done.stderr.strip() and done.returncode == 3


def test_large_streams_pass_whole_in_both_directions_and_the_end_of_input_is_told(agent):
    data = os.urandom(1 << 16) * 200
    done = agent.run("sh", "-c", "tee /dev/stderr", input=data)
    assert [hashlib.sha256(text).digest() for text in (done.stdout, done.stderr)] == [hashlib.sha256(data).digest()] * 2
    assert agent.run("true", input=data).returncode == 0, "what is not read is dropped, and how it ended still comes"


def test_lines_are_answered_at_once(agent):
    with agent.start("cat") as client:
        for number in range(50):
            client.stdin.write(b"%d\n" % number)
            client.stdin.flush()
            assert client.stdout.readline() == b"%d\n" % number
        client.stdin.close()
        assert client.wait(30) == 0


def test_signals_reach_the_command_and_its_end_by_one_is_ours(agent):
    trap = 'trap "echo told; exit 5" TERM; echo up; while :; do sleep 0.05; done'
    with agent.start("sh", "-c", trap) as client:
        assert client.stdout.readline() == b"up\n"
        client.send_signal(signal.SIGTERM)
        assert client.stdout.read() == b"told\n" and client.wait(30) == 5
    assert agent.run("sh", "-c", "kill -9 $$").returncode == -signal.SIGKILL


FAMILY = """
import os, subprocess, sys, time
away = subprocess.Popen(["setsid", "sleep", "600"])
print(os.getpid(), away.pid, flush=True)
time.sleep(float(sys.argv[1]))
"""


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_client_that_is_killed_leaves_nothing_there_not_even_what_left_the_session(agent):
    with agent.start(sys.executable, "-c", FAMILY, "600") as client:
        pids = [int(word) for word in client.stdout.readline().split()]
        assert all(map(is_there, pids))
        client.kill()
    wait_until(lambda: not any(map(is_there, pids)), "the end of the command and its child")
    assert agent.run("true").returncode == 0, "others are not touched"


def test_what_a_command_leaves_ends_with_it_and_does_not_keep_its_output_open(agent):
    began = time.monotonic()
    done = agent.run(sys.executable, "-c", FAMILY, "0")
    assert done.returncode == 0 and time.monotonic() - began < 30
    assert not any(is_there(int(word)) for word in done.stdout.split())


def test_the_end_of_the_agent_s_input_ends_all(agent):
    with agent.start(sys.executable, "-c", FAMILY, "600") as client:
        pids = [int(word) for word in client.stdout.readline().split()]
        agent.close()
        assert client.wait(30) == node_call.NO_CALL
    assert not any(map(is_there, pids))


def test_nothing_runs_without_the_secret(agent, tmp_path):
    agent.environment["BENCHHOUSE_NODES"] = str(tmp_path / "other.json")
    real = agent.list.read_text()
    (tmp_path / "other.json").write_text(real.replace("right", "wrong"))
    done = agent.run("touch", str(tmp_path / "mark"))
    assert done.returncode == node_call.NO_CALL and b"without the secret" in done.stderr
    with socket.create_connection(("127.0.0.1", agent.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: far\r\n\r\n" + b"x" * 200)
        stranger.settimeout(30)
        answer = stranger.recv(64) + stranger.recv(4096)
    assert b"secret" in answer or len(answer) <= 64
    assert not (tmp_path / "mark").exists()
    assert b"right" not in Path(f"/proc/{agent.process.pid}/cmdline").read_bytes()


def test_the_trial_s_limits_hold_there_but_not_for_its_sampler(tmp_path):
    agent = Agent(tmp_path, memory=200_000_000)
    try:
        grow = [sys.executable, "-S", "-c", "print(len(bytearray(500_000_000)))"]
        assert agent.run(*grow).stdout == b"500000000\n"
        agent.environment["BENCHHOUSE_TRIAL"] = "t1"
        assert agent.run(*grow).returncode not in (0, node_call.NO_CALL)
        assert agent.run("true").returncode == 0
    finally:
        agent.close()


def test_what_cannot_be_started_is_told(agent):
    done = agent.run("/no/such/program")
    assert done.returncode == 127 and b"/no/such/program: No such file" in done.stderr
    agent.introduce("right", port=9)
    done = agent.run("true")
    assert done.returncode == node_call.NO_CALL and b"far can't be reached at 127.0.0.1:9" in done.stderr


def test_a_trial_gets_its_nodes_and_the_way_to_them_from_the_list(agent, monkeypatch):
    for name in ("BENCHHOUSE_NODES", "BENCHHOUSE_NODE"):
        monkeypatch.setenv(name, agent.environment[name])
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    assert nodes.names() == ["near", "far"] and nodes.others() == ["127.0.0.1"]
    done = subprocess.run([*nodes.command_on("far", 1), "printenv", "BENCHHOUSE_NODE"], capture_output=True, check=True)
    assert done.stdout == b"far\n"
