"""The command ``noisin``, which is also ``python -m noisin``."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C while it loads ends it as quietly as one while it works."""
    from noisin._util.lazy import installed
    from noisin.errors import MissingPackage

    try:
        with installed("the command noisin", "cli"):
            from noisin import cli
    except MissingPackage as error:
        print(f"noisin: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("noisin: interrupted.", file=sys.stderr)
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
