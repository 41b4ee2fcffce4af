"""Importers: other tools' result files, one file each. An importer says whether a file is its tool's, and reads it into
cases with their raw samples; the experiment `imported` makes a trial of each case."""
