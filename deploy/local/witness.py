"""The witness of a run on this machine, for --on-end: a process that outlives this command (node/beside/on_end.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from ..core.errors import DeployError
from ..run.environment import ON_END, RESUME_COMMAND, RunSpec
from ..run.files.folders import with_muster
from ..send.image import commands


def start(run: RunSpec, command: str) -> None:
    """Start it, if there is a command. It waits for the nodes, and ends by itself after them. Raises DeployError."""
    if not command:
        return
    plan = {
        **{"command": command, "run": run.run_id, "folder": str(run.run_dir), "nodes": list(run.names)},
        **{"start": run.nodes[0].environment["PET_RDZV_ID"], "names": list(run.names)},
        **{"restarts": run.script is None or run.script.restarts > 0},
        **{"rank": 0, "hosts": [""], "place": 0, "port": 0, "token": ""},
    }
    # Without MUSTER_RUN_DIR: by that variable, the end of the run would find and kill it.
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "PET_"))}
    plain[RESUME_COMMAND] = f"muster resume {run.run_id}"
    try:
        subprocess.Popen(
            commands.witness(sys.executable),
            env=with_muster({**plain, ON_END: json.dumps(plan)}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as fault:
        raise DeployError(f"--on-end: cannot start {sys.executable}: {fault.strerror}") from fault
