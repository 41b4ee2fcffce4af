"""The immutable, hashed folder of one attempt: written, sealed, verified, read."""
