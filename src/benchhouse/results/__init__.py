"""Results as values: points, comparisons, history, trade-offs, lineage and causes. Tables go in, values come out.

Nothing here writes a page; `report` draws these values and `claims` publishes them.
"""
