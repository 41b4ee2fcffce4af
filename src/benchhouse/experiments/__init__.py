"""Built-in experiments; they are registered through the same entry points as those of other packages."""
