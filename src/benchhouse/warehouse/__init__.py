"""Curated tables rebuilt from evidence: one Parquet file per (table, run), a SQLite catalog, DuckDB in memory."""
