"""The public Python API: every verb is a method of `Workspace`, and every answer is a typed value that can display
itself.

The command line, notebooks, pages, and agents call this package and nothing below it.
"""
