"""Muster's commands as tasks of `fab` (`fab --list` shows them); deploy/commands/main.py makes them `muster`."""

from __future__ import annotations

import sys

# invoke turns bytecode off; every command would then compile all of deploy/ again, which takes a quarter of a second.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from invoke.collection import Collection  # noqa: E402

from deploy.commands.fab import tasks_of  # noqa: E402
from deploy.commands.main import end_quietly_when_nobody_reads, take_no_program_from_here  # noqa: E402

end_quietly_when_nobody_reads()
take_no_program_from_here()

namespace = Collection(*tasks_of(sys.argv[1:]))
__all__ = ["namespace"]
