"""Where jobs go. Each executor is one file and one entry point."""
