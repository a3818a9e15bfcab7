"""The command ``noisin``, which is also ``python -m noisin``."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C while it loads ends it as quietly as one while it works."""
    try:
        from noisin import cli
    except KeyboardInterrupt:
        print("noisin: interrupted.", file=sys.stderr)
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
