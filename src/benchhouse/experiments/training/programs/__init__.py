"""Programs that run under the Python of the trainer, because that one has torch: they import nothing of ours."""
