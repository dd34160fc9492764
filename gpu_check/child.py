"""`python -m gpu_check.child NAME FOLDER`: run one check in a separate process, so that it can be killed.

It writes its findings to FOLDER/findings.jsonl one by one, so that the findings of a killed check up to that point are
known.
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
    """Run the check `name` in `folder`; the file with the machine's facts is next to that folder."""
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
