"""What the load engine and experiments expect of a driver: one module per kind of service, protocols and plain values.

Drivers and experiments both use these modules and never import each other.
"""
