"""``python -m anew.cli``."""

from __future__ import annotations

from anew.cli.main import run

if __name__ == "__main__":
    run()
