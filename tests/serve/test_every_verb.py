"""Every verb of the command line that reads is answered over HTTP too, or it is said here why not."""

import importlib
import pkgutil
from collections.abc import Iterator

import click

import benchhouse.cli.verbs as verbs
from benchhouse.serve import app
from benchhouse.serve.verbs import VERBS

OVER_HTTP = {
    "alarms list": "alarms",
    "alarms log": "alarm_log",
    "alarms mute": "mute_alarm",
    "approvals list": "approvals",
    "approvals revoke": "revoke_approval",
    "approvals show": "approval_show",
    "approvals verify": "approval_show",
    "approve": "approve_plan",
    "audit": "audit",
    "baseline accept": "accept_baseline",
    "baseline list": "baselines",
    "baseline show": "history",
    "claim lint": "claim_documents",
    "claim list": "claims",
    "claim make": "make_claim",
    "claim show": "claim_show",
    "claim verify": "claim_verify",
    "clients list": "clients",
    "collect": "collect",
    "compare": "compare",
    "contracts list": "benchmark_contracts",
    "contracts render": "run_contract_rendered",
    "contracts show": "benchmark_contract",
    "contracts validate": "validate_contract",
    "evaluations": "evaluations",
    "fetch": "data",
    "gate": "gate",
    "github list": "github_orders",
    "history": "history",
    "images list": "images",
    "infra show": "infra",
    "leaderboard": "leaderboard",
    "list benchmarks": "benchmarks",
    "list experiments": "experiments",
    "list exporters": "exporters",
    "list importers": "importers",
    "list targets": "targets",
    "logs tail": "run_logs",
    "monitors list": "monitors_available",
    "monitors ps": "monitors",
    "packages list": "packages",
    "packages show": "package_show",
    "plan": "plan",
    "query": "query",
    "report": "run_report",
    "schedule list": "schedules",
    "schedule show": "schedule_show",
    "selftest": "selftest",
    "servers check": "server_check",
    "servers list": "recipes",
    "servers ps": "servers",
    "servers validate": "validate_recipe",
    "show": "run_overview",
    "site list": "sites",
    "site show": "site_show",
    "status": "run_status",
    "stop": "stop",
    "submit": "submit",
    "token list": "tokens",
    "trace": "trace",
    "validate": "validate",
    "verify": "run_verify",
    "views release": "release_view",
    "warehouse schema": "warehouse_schema",
    "warehouse share": "warehouse_shared",
    "why": "run_why",
}
WRITES = {
    "alarms check", "claim export", "claim key make", "clients run", "clients stop", "dashboards write", "evaluate",
    "evidence pull", "evidence push", "export", "github report", "images add", "images build", "images pin",
    "images pull", "import", "infra create", "infra destroy", "logs get", "logs prune", "monitors start",
    "monitors stop", "packages scan", "packages sign", "run", "schedule add", "schedule run-now", "servers start",
    "servers stop", "slo find", "start", "time", "token make", "token revoke", "warehouse prune", "warehouse pull",
    "warehouse push", "warehouse rebuild",
}  # fmt: skip
ONLY_HERE = {
    "convert": "reads variables of the environment, which is the server's",
    "evidence verify": "goes to a store that the caller names, with the server's credentials",
    "images verify": "reads every image of the machine, gigabytes of it",
    "packages together": "has a resolver work for minutes, which asks the network",
    "packages verify": "hashes all that is installed here; `packages` says in short how it stands",
    "packages validate": "has a resolver work for minutes, which asks the network",
    "site check": "asks the programs of the machine that it is called on, and may submit a job",
    "site render": "is for the admin of a cluster, who applies it there",
}


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    """Those below `command` that print JSON."""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands(below, (*path, name))
    elif any(parameter.name == "as_json" for parameter in command.params):
        yield " ".join(path)


def test_every_verb_of_the_command_line_is_answered_over_http_writes_or_is_said_to_be_for_here_alone():
    known = {
        name
        for module in pkgutil.iter_modules(verbs.__path__)
        for name in commands(
            importlib.import_module(f"{verbs.__name__}.{module.name}").command, (module.name.strip("_"),)
        )
    }
    assert known == OVER_HTTP.keys() | WRITES | ONLY_HERE.keys()
    assert app.DECLARED and set(OVER_HTTP.values()) <= VERBS.keys()
