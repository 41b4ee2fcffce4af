"""A table of verdicts has the fields of the lines that it is read from, all of them and no other."""

from tables import check_table

from benchhouse.schema.alarms import Notice
from benchhouse.schema.quality import AlarmRecord, BaselineRecord, RegressionRecord
from benchhouse.warehouse.tables import TABLES


@check_table(
    "name, line",
    [
        ("regression_fact", RegressionRecord),
        ("alarm_fact", AlarmRecord),
        ("baseline_fact", BaselineRecord),
        ("notice_fact", Notice),
    ],
)
def test_the_columns_are_the_fields(name, line):
    assert {column.name for column in TABLES[name].columns} == set(line.model_fields) - {"schema_version"}
