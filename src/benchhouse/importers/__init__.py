"""Importers of other tools' result files, one module per tool.

An importer recognizes its tool's files and reads them into cases with raw samples; the experiment `imported` makes a
trial of each case.
"""
