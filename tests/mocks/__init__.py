"""Servers that stand in for what can't be had, with laws and flaws that are known exactly. Their names say mock."""
