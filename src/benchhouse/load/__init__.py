"""The load engine: offers requests to any driver on a schedule, closed or open, and stamps what comes back.

A shape (how much, when, for how long) and a source of requests go in; tallies, 1 s intervals and a certificate that
says whether the load was really delivered come out. It knows no protocol and no metric of any experiment.
"""
