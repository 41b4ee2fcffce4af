"""What the machine and the trial's processes do during a trial: sources are read at every tick and stored as series.

Input: sources (`schema.telemetry.Source`). Output: Parquet files and a summary in the trial's `telemetry` folder.
"""
