"""The program that is a Ray cluster of several nodes; it obeys lines of its input, and ends when that does."""

import json
import os
import socket
import sys
from typing import Any

_AGENTS = ("metrics_agent_port", "dashboard_agent_listen_port", "runtime_env_agent_port", "metrics_export_port")


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return found


def agents() -> dict[str, int]:
    """Ports that are given beforehand: for a port that an agent chooses, Ray waits 15 s, and then gives its node up."""
    return dict(zip(_AGENTS, free_ports(len(_AGENTS)), strict=True))


def main(folder: str) -> None:
    answers = os.dup(1)
    os.dup2(2, 1)
    from ray.cluster_utils import Cluster

    dashboard, clients = free_ports(2)
    head = {
        "num_cpus": 0,
        "temp_dir": f"{folder}/ray",
        "node_name": "head",
        "include_dashboard": True,
        "dashboard_port": dashboard,
        "ray_client_server_port": clients,
        **agents(),
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes: dict[str, Any] = {}

    def add(name: str) -> None:
        resources = {"widget": 1} if name == "n2" else {}
        nodes[name] = cluster.add_node(num_cpus=2, num_gpus=0, resources=resources, node_name=name, **agents())
        cluster.wait_for_nodes(600)

    def say(**facts: Any) -> None:
        os.write(answers, json.dumps(facts).encode() + b"\n")

    add("n1")
    add("n2")
    say(address=cluster.address, dashboard=f"http://{cluster.webui_url}", clients=clients)
    for line in sys.stdin:
        what, name = json.loads(line)
        if what == "add":
            add(name)
        elif what == "kill":
            cluster.remove_node(nodes.pop(name), allow_graceful=False)
        say(done=what)
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
