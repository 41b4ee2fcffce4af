"""Scenario -> Plan: pure and streaming. A scenario file goes in, bound instances come out one by one."""

from benchhouse.plan.expand import Plan, PlannedTrial, join_versions, make_plan
from benchhouse.plan.fitting import site_problems
from benchhouse.plan.model_target import bind_model
from benchhouse.plan.scenario_file import (
    FaultyScenarioError,
    ScenarioFile,
    expand_benchmark,
    load_scenario,
    parse_scenario,
    read_scenario,
)
from benchhouse.plan.scenario_paths import package_problems, with_absolute_paths
from benchhouse.plan.services import bind_services, with_own_server
from benchhouse.plan.spaces import benchmark_of_space

__all__ = [
    "FaultyScenarioError",
    "Plan",
    "PlannedTrial",
    "ScenarioFile",
    "benchmark_of_space",
    "bind_model",
    "bind_services",
    "expand_benchmark",
    "join_versions",
    "load_scenario",
    "make_plan",
    "package_problems",
    "parse_scenario",
    "read_scenario",
    "site_problems",
    "with_absolute_paths",
    "with_own_server",
]
