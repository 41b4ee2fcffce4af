"""Programs that run under the trainer's Python, because it has torch: they import none of our modules."""
