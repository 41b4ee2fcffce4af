"""Claims: a number is judged, written down, signed, packed and checked again; runs and trials go in, files come out."""
