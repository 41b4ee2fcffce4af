"""Vector databases and libraries: data, exact neighbours, and the experiment that searches.

In: a driver, data and a load. Out: queries a second and latency, against recall and memory.
"""
