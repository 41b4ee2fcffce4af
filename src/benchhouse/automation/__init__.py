"""Triggers and messages: alarm rules that are checked after a run or on request, and the channels that are notified.

Rows of the warehouse go in; notices come out, each delivered at least once.
"""
