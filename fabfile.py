"""`fab --list` shows what there is to do. deploy/cli/main.py lists the tasks, and makes them `muster`."""

from __future__ import annotations

import sys

# invoke turns this off, and every command would then compile all of deploy/ again, in a quarter of a second.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from deploy.cli.main import end_quietly_when_nobody_reads, namespace  # noqa: E402

end_quietly_when_nobody_reads()

__all__ = ["namespace"]
