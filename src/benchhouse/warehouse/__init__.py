"""Curated tables that are rebuilt from evidence: one Parquet file per (table, run), a SQLite catalog, DuckDB in
memory."""
