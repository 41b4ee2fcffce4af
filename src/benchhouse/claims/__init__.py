"""Claims: a number is judged, recorded, signed, packed, and verified. The input is runs and trials, the output is
files.
"""
