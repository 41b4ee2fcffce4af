"""Reports: curated tables as HTML and Markdown that open offline, every number with its lineage."""
