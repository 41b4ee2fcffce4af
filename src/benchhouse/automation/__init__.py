"""Triggers and messages: alarm rules, the channels that they notify, and schedules with the agent that runs them.

Input is rows of the warehouse; output is notices, each delivered at least once.
"""
