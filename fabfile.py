"""`fab --list` shows what there is to do. deploy/commands/main.py lists the commands, and makes them `muster`."""

from __future__ import annotations

import sys

# invoke turns this off, and every command would then compile all of deploy/ again, in a quarter of a second.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from invoke.collection import Collection  # noqa: E402

from deploy.commands.fab import tasks_of  # noqa: E402
from deploy.commands.main import end_quietly_when_nobody_reads, take_no_program_from_here  # noqa: E402

end_quietly_when_nobody_reads()
take_no_program_from_here()

namespace = Collection(*tasks_of(sys.argv[1:]))
__all__ = ["namespace"]
