"""`python -m isthmus`, and where `isthmus` begins."""

from isthmus.interrupts import Interrupted, end_at_once, leave


def main() -> None:
    end_at_once()
    try:
        from isthmus import cli  # a tenth of a second, and more on a busy machine

        cli.main()
    except Interrupted:
        leave()
    finally:
        end_at_once()  # what is left is the interpreter's own end


if __name__ == "__main__":
    main()
