"""The public Python API: every verb as a method of `Workspace`, every answer a typed value that shows itself.

The command line, notebooks, and later pages and agents call this and nothing below it.
"""
