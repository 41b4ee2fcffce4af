"""Built-in experiments; they enter through the same entry points as a stranger's."""
