"""Every verb as a function: what the command line, and later web, MCP and notebooks, call. It composes the rest."""
