"""The pages: each module makes some of them from the answers of the Python API, with the tags of reports."""
