"""Recipes: declarations of servers, one file each, found by entry point (`benchhouse.recipes`).

The input is the place of a program; the output is a `Recipe`, which the worker turns into a running server for a trial.
"""
