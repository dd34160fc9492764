"""`fab --list` shows what there is to do. deploy/cli/main.py lists the tasks, and makes them `muster`."""

from __future__ import annotations

import sys

# invoke turns this off, and every command would then compile all of deploy/ again, in a quarter of a second.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from fabric.main import program  # noqa: E402

from deploy.cli.main import (  # noqa: E402
    commands,
    end_quietly_when_nobody_reads,
    refusing,
    take_no_program_from_here,
    words_of,
)

end_quietly_when_nobody_reads()
take_no_program_from_here()
refusing(program)
# fab itself would run the words after `--` on its own hosts. It has read the command line, and not yet the tasks.
if "--" in sys.argv and getattr(program, "core", None) and program.core.unparsed:
    program.core.unparsed[:] = words_of([*program.core.unparsed, *sys.argv[sys.argv.index("--") :]])
    program.core.remainder = ""

namespace = commands(sys.argv)
__all__ = ["namespace"]
