"""Curated tables that are rebuilt from evidence: a Parquet file per (table, run), a SQLite catalog, DuckDB in
memory."""
