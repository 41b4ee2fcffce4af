"""`python -m benchhouse` is `bench`."""

from benchhouse.cli import main

if __name__ == "__main__":
    main()
