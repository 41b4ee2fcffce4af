"""Web pages, an HTTP API and MCP over one workspace: thin, no logic that the Python API does not have."""
