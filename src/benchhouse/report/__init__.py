"""Turns curated tables into HTML and Markdown that open offline, every number with its lineage."""
