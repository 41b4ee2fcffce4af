"""The list of tables, version 8. A new table is declared in its own file and is one line here.

Changes of evidence tables, which `rows.py` fills, raise SCHEMA_VERSION; changes of tables with a `source` do not.
"""

from benchhouse.warehouse import outcome_tables as outcomes
from benchhouse.warehouse import run_tables as facts
from benchhouse.warehouse import verdict_tables as verdicts
from benchhouse.warehouse.points import POINTS_VIEW
from benchhouse.warehouse.table import Table

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        facts.RUN_FACT,
        outcomes.SERVING_OUTCOME_FACT,
        outcomes.TRAINING_OUTCOME_FACT,
        facts.TELEMETRY_SLICE_FACT,
        facts.SOFTWARE_VERSION_DIM,
        facts.HARDWARE_TOPOLOGY_DIM,
        facts.CLUSTER_REGION_DIM,
        facts.WORKLOAD_DIM,
        facts.LINEAGE_DIM,
        facts.TRIAL_FACT,
        facts.MEASUREMENT_FACT,
        outcomes.STORAGE_OUTCOME_FACT,
        outcomes.VECTOR_OUTCOME_FACT,
        verdicts.REGRESSION_FACT,
        verdicts.ALARM_FACT,
        verdicts.NOTICE_FACT,
        verdicts.BASELINE_FACT,
        verdicts.APPROVAL_FACT,
        verdicts.CLAIM_FACT,
        verdicts.RAW_EVIDENCE_FACT,
    )
}
EVIDENCE_TABLES = {name: table for name, table in TABLES.items() if not table.source}
"""The tables with one file per run in the lake."""
VIEWS = {POINTS_VIEW.name: POINTS_VIEW}
"""The views, which are computed from tables at each query."""
