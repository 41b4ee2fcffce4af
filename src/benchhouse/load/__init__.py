"""The load engine: sends requests to any driver on a schedule, closed or open loop, and stamps the answers.

Input: a shape (how much, when, for how long) and a source of requests. Output: tallies, 1 s intervals, and a
certificate of whether the load was really delivered. It knows no protocol and no metric of any experiment.
"""
