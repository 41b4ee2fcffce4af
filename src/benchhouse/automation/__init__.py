"""Triggers and messages: alarm rules, the channels that are notified, and schedules with the agent that keeps them.

Rows of the warehouse go in; notices come out, each delivered at least once.
"""
