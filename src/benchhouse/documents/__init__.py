"""Files that users write: YAML with the position of every value, and all problems of a file at once, with did-you-mean.

Text goes in; data, positions and `Problem`s come out. Nothing here knows what a scenario is.
"""
