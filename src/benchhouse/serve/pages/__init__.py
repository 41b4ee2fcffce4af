"""The pages. Each module makes some of them from answers of the Python API, with the tags of reports."""
