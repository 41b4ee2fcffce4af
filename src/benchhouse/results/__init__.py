"""Results as values, computed from the tables: points, comparisons, history, trade-offs, lineage, and causes.

This package writes no pages; `report` draws these values and `claims` publishes them.
"""
