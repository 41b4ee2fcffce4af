"""Readers of files that users write: positions of all values, and all problems of a file at once, with suggestions.

They turn text into data, positions, and `Problem`s, and know nothing about scenarios.
"""
