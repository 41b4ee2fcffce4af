"""What the load engine and experiments expect of a driver: one module a kind of service, protocols and plain values.

Drivers and experiments meet here and never import each other.
"""
