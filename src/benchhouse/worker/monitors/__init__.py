"""What the machine and the trial's processes do while a trial runs: sources are read at every tick and kept as series.

Sources (`schema.telemetry.Source`) go in; Parquet files and a summary come out, in the trial's `telemetry` folder.
"""
