"""`python -m isthmus`."""

from isthmus.cli import main

if __name__ == "__main__":
    main()
