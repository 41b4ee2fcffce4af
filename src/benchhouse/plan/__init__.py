"""Scenario -> Plan: pure and streaming. A scenario file goes in, bound instances come out one by one."""
