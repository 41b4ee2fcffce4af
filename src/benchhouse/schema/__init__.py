"""The nouns: what crosses a boundary (YAML, file, process, table) is a model in this package.

It imports nothing else of ours; every other package speaks in its terms.
"""
