"""Recipes: servers as declarations, one file each, found by entry point (`benchhouse.recipes`).

In: the place of a program. Out: a `Recipe`, which the worker turns into a running Service for a trial.
"""
