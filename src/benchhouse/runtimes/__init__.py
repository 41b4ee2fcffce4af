"""What a job runs inside: the host's Python, an isolated venv. Each runtime is one file and one entry point."""
