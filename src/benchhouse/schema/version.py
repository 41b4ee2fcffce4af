"""The version of this package, for modules that must not import `benchhouse` itself."""

__version__ = "0.1.0"
