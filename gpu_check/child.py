"""`python -m gpu_check.child NAME FOLDER`: one check, in a process of its own, so that it can be killed whole.

Its findings go into FOLDER/findings.jsonl as they come: those of a check that is killed are known up to there.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

from trainer.node.parent_death import die_with_parent

from .bench import Bench
from .checks import module
from .finding import NOT_MET, Finding
from .nodes import Late

FINDINGS, MACHINE = "findings.jsonl", "machine.json"


def main(name: str, folder: Path) -> None:
    """Run the check `name` in `folder`; the machine's facts are beside it."""
    die_with_parent(signal.SIGKILL)
    machine = json.loads((folder.parent / MACHINE).read_text())
    bench = Bench(machine, folder, lambda text: print(text, flush=True))
    with (folder / FINDINGS).open("a") as file:

        def write(finding: Finding) -> None:
            file.write(json.dumps(asdict(finding)) + "\n")
            file.flush()

        began = time.monotonic()
        try:
            for finding in module(name).run(bench):
                write(finding)
        except Late as fault:
            write(fault.finding(f"{name} to its end"))
        except Exception as fault:
            after = f"after {time.monotonic() - began:.0f} s: {type(fault).__name__}: {fault}"
            write(Finding(f"{name} to its end", NOT_MET, after, words=traceback.format_exc()))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
