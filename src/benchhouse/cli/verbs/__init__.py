"""One file per verb: a click command named `command`. The first line of the file is its help."""
