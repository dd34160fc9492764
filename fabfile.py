"""`fab --list` shows what there is to do. deploy/cli/main.py lists the tasks, and makes them `muster`."""

from __future__ import annotations

import sys

# invoke turns this off, and every command would then compile all of deploy/ again, in a quarter of a second.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from fabric.main import program  # noqa: E402

from deploy.cli.main import commands, end_quietly_when_nobody_reads, refusing, words_of  # noqa: E402

end_quietly_when_nobody_reads()
refusing(program)
# fab itself would run the words after `--` on its own hosts. It has read the command line, and not yet the tasks.
if "--" in sys.argv and getattr(program, "core", None) and program.core.unparsed:
    program.core.unparsed[:] = words_of([*program.core.unparsed, *sys.argv[sys.argv.index("--") :]])
    program.core.remainder = ""

namespace = commands(sys.argv)
__all__ = ["namespace"]
