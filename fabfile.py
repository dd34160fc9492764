"""`fab --list` shows what there is to do. deploy/cli/main.py lists the tasks, and makes them `muster`."""

from __future__ import annotations

import sys

# invoke has turned this off: every command would compile all of deploy/ anew, a quarter of a second.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from deploy.cli.main import end_quietly_when_nobody_reads, namespace  # noqa: E402

end_quietly_when_nobody_reads()

__all__ = ["namespace"]
