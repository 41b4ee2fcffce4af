"""Pure statistics: values in, values out; no files, no clock."""
