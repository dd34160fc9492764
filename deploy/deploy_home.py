"""What a run on real hosts left or says, brought home: `fab fetch`. The run itself is not touched."""

from __future__ import annotations

import base64
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy import host_commands, host_observe, launch
from deploy.errors import DeployError
from deploy.inventory import Cluster
from deploy.results import Results
from deploy.session import Session, on_all, open_all

_OWN = {"record.json", "outcome.json", "timeline.jsonl", "report.html"}


def fetch(cluster: Cluster, run: str) -> Path:
    """Bring a run's folder home from every host and build its page; returns the local run folder.

    Raises DeployError with every host that failed; what the others had is home then.
    """
    with open_all(cluster.hosts) as opened:
        sessions = list(opened.values.values())
        found = host_observe.facts(sessions)
        run = _choose(run, sorted(frozenset[str]().union(*(facts.runs for facts in found.values.values()))))
        run_dir = launch.RUNS / run
        run_dir.mkdir(parents=True, exist_ok=True)
        having = [session for session in sessions if run in getattr(found.values.get(session.host.name), "runs", ())]
        brought = on_all(having, lambda session: _bring(session, run, run_dir))
        launch.write_page(run_dir)
        _all_faults(opened, found, brought)
        return run_dir


def _bring(session: Session, run: str, run_dir: Path) -> int:
    """Unpack the host's run folder into ours; returns bytes of the archive."""
    with tempfile.TemporaryFile() as file:
        command = host_commands.take_home(f"{session.home}/runs/{run}")
        done = session.run(command, timeout_s=None, on_line=lambda line: _write(file, line), check=False)
        size = file.tell()
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:gz") as tar:
                members = [member for member in tar if member.name.removeprefix("./") not in _OWN]
                # The filter refuses links and names that lead out of the folder: a host is not trusted that far.
                tar.extractall(run_dir, members=members, filter="data")
        except (tarfile.TarError, OSError, EOFError) as fault:
            said = done.err.strip() or str(fault)
            raise DeployError(f"{session.host.name}: its part of {run} did not arrive whole: {said}") from fault
    return size


def _write(file: object, line: str) -> None:
    try:
        file.write(base64.b64decode(line, validate=True))  # type: ignore[attr-defined]
    except ValueError:
        return  # what tar complains of


def _choose(run: str, there: Sequence[str]) -> str:
    if run in there:
        return run
    if not run and len(there) == 1:
        return there[0]
    what = f"{run} is not on these hosts" if run else "which run?"
    raise DeployError(f"{what}: there are {', '.join(there) or 'none'}", "name it: --run ID")


def _all_faults(*results: Results[Any]) -> None:
    faults = {host: fault for found in results for host, fault in found.faults.items()}
    Results({host: faults.get(host, True) for host in results[0]}).all()
