"""Answers for a terminal: tables, blocks, and progress, as the command line prints them and `.show()` does in Python.

Input is values of `results` and `runs`; text goes to stdout, notes to stderr.
"""
