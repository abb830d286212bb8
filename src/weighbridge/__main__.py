"""`python -m weighbridge`."""

from __future__ import annotations

from weighbridge.cli import main

if __name__ == "__main__":
    main()
