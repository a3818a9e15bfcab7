"""``python -m noisin``."""

from noisin.cli import main

if __name__ == "__main__":
    main()
