"""`python -m isthmus`, and where `isthmus` begins."""

from isthmus.interrupts import end_at_once


def main() -> None:
    end_at_once()
    try:
        from isthmus import cli  # a tenth of a second, and more on a busy machine

        cli.main()
    finally:
        end_at_once()  # what is left is the interpreter's own end


if __name__ == "__main__":
    main()
