"""`python -m benchhouse` is `bench`."""

from benchhouse.cli import start

if __name__ == "__main__":
    start()
