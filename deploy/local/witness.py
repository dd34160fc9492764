"""The witness of a run's end on this machine, for --on-end: it outlives this command (node/beside/on_end.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from ..core.errors import DeployError
from ..run.environment import ON_END, RESUME_COMMAND, SECRETS_PRESENT, RunSpec, Script
from ..run.files.folders import with_muster
from ..send.image import commands


def start(run: RunSpec, command: str) -> None:
    """Start the witness, if there is a command. It waits for the nodes, then ends itself. Raises DeployError."""
    if not command:
        return
    first = run.nodes[0].environment
    script = run.script or Script("")
    restarts = run.script is None or script.restarts > 0
    plan = {
        **{"command": command, "run": run.run_id, "folder": str(run.run_dir), "nodes": list(run.names)},
        **{"start": first["PET_RDZV_ID"], "restarts": restarts, "rank": 0, "hosts": [""], "place": 0},
        **{"names": list(run.names), "port": 0, "token": ""},
    }
    # Without MUSTER_RUN_DIR: with this variable the witness would count as a process of the run, and be killed at its
    # end.
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "PET_"))}
    own = {**script.own, RESUME_COMMAND: first[RESUME_COMMAND], **script.secrets}
    own[SECRETS_PRESENT] = ",".join(script.secrets)
    try:
        subprocess.Popen(
            commands.witness(sys.executable),
            env=with_muster({**plain, **own, ON_END: json.dumps(plan)}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as fault:
        raise DeployError(f"--on-end: cannot start {sys.executable}: {fault.strerror}") from fault
