"""``coresident`` and ``python -m coresident``."""

from __future__ import annotations


def main() -> None:
    """Run the command line; the process ends with its exit code."""
    from .cli.app import app

    app(prog_name="coresident")


if __name__ == "__main__":
    main()
