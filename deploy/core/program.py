"""How the user calls this program, decided once at its start: messages name commands with these words.

`fab` and `make` belong to the checkout; pip installs `muster`, which takes options where make takes variables.
"""

from __future__ import annotations

import sys
from pathlib import Path

# In a wheel this package is `muster.deploy`: a program that uses the Python API has no `fab` either.
INSTALLED = Path(sys.argv[0]).name == "muster" or __name__.startswith("muster.")
FAB, MAKE = ("muster", "muster") if INSTALLED else ("fab", "make")


# The command on this command line that starts a run, for hints that repeat it; a program of the Python API deploys.
COMMAND = next((word for word in sys.argv[1:] if word in ("up", "deploy", "agent", "export")), "deploy")

# Where the user's script stands on this command line.
SCRIPT = "--" if "--" in sys.argv and "--script" not in sys.argv else "--script"


def option(name: str, value: object) -> str:
    """`RESUME=latest` as make takes it, `--resume=latest` as muster does."""
    return f"--{name.lower()}={value}" if INSTALLED else f"{name}={value}"
