"""The list of tables, version 2. A further one is declared in a file of its own and is one line here.

Tables of evidence, which `rows.py` fills, raise SCHEMA_VERSION when they change; those with a `source` need not.
"""

from benchhouse.warehouse.outcome_tables import (
    SERVING_OUTCOME_FACT,
    STORAGE_OUTCOME_FACT,
    TRAINING_OUTCOME_FACT,
    VECTOR_OUTCOME_FACT,
)
from benchhouse.warehouse.points import POINTS_VIEW
from benchhouse.warehouse.run_tables import (
    CLUSTER_REGION_DIM,
    HARDWARE_TOPOLOGY_DIM,
    LINEAGE_DIM,
    MEASUREMENT_FACT,
    RUN_FACT,
    SOFTWARE_VERSION_DIM,
    TELEMETRY_SLICE_FACT,
    TRIAL_FACT,
    WORKLOAD_DIM,
)
from benchhouse.warehouse.table import SCHEMA_VERSION, Column, Kind, Row, Table, quoted
from benchhouse.warehouse.verdict_tables import ALARM_FACT, BASELINE_FACT, CLAIM_FACT, NOTICE_FACT, REGRESSION_FACT

__all__ = [
    "CLUSTER_REGION_DIM", "EVIDENCE_TABLES", "HARDWARE_TOPOLOGY_DIM", "LINEAGE_DIM", "MEASUREMENT_FACT", "RUN_FACT",
    "SCHEMA_VERSION", "SOFTWARE_VERSION_DIM", "TABLES", "TELEMETRY_SLICE_FACT", "TRIAL_FACT", "VIEWS", "WORKLOAD_DIM",
    "Column", "Kind", "Row", "Table", "quoted",
]  # fmt: skip

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        RUN_FACT,
        SERVING_OUTCOME_FACT,
        TRAINING_OUTCOME_FACT,
        TELEMETRY_SLICE_FACT,
        SOFTWARE_VERSION_DIM,
        HARDWARE_TOPOLOGY_DIM,
        CLUSTER_REGION_DIM,
        WORKLOAD_DIM,
        LINEAGE_DIM,
        TRIAL_FACT,
        MEASUREMENT_FACT,
        STORAGE_OUTCOME_FACT,
        VECTOR_OUTCOME_FACT,
        REGRESSION_FACT,
        ALARM_FACT,
        NOTICE_FACT,
        BASELINE_FACT,
        CLAIM_FACT,
    )
}
EVIDENCE_TABLES = {name: table for name, table in TABLES.items() if not table.source}
"""Those that have a file in the lake for each run."""
VIEWS = {POINTS_VIEW.name: POINTS_VIEW}
"""What is computed from tables whenever it is asked for."""
