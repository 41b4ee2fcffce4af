"""Answers for a terminal: tables, blocks and progress, as the command line prints them and `.show()` does in Python.

Values of `results` and `runs` go in; text goes to stdout, notes to stderr.
"""
