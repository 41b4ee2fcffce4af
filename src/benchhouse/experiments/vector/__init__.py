"""Vector databases and libraries: data, exact neighbors, and the experiment that searches.

In: a driver, data, and a load. Out: queries per second and latency, against recall and memory.
"""
