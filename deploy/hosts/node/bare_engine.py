"""If no host of a run has an engine, each host gets Muster's own bare engine, and all hosts get the same Python for it.

A host whose Python is missing or too old gets uv's Python: from this machine, or downloaded by the host itself. If the
hosts' Pythons differ, all of them get it: a run's nodes share one environment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from ...core.errors import DeployError
from ...core.results import Results
from ...door.session import Session, on_all
from ...engine import install_bare
from ...host import audit
from ...host import facts as host_facts
from ...job.option_words import command_of
from ...job.options import FLAG
from ...run.files import folders
from ...send.packages import settings, store, uv


def bring(
    sessions: Mapping[str, Session], answers: Results[str], look: Callable[[Session], str], may_write: bool
) -> Results[str]:
    """Return each host's answer to `look` once it has its engine. `may_write`: false in a dry run."""
    fresh = _Bringer()

    def again(hosts: list[str], same: bool) -> Results[str]:
        def work(session: Session) -> str:
            if not may_write:
                raise DeployError(
                    f"{session.name}: no container engine there: the run's nodes would be plain processes, started by "
                    "a 60 kB program that is not there yet, and a dry run sends nothing",
                    f"{command_of('preflight', hosts=session.host.destination)} sends that program; or leave out "
                    f"{FLAG.dry_run}",
                )
            fresh.bring(session, same)
            return look(session)

        done = on_all([sessions[host] for host in hosts], work)
        return Results({**answers.values, **answers.faults, **done.values, **done.faults})

    if lacking := [host for host, answer in answers.values.items() if not _python(answer)]:
        answers = again(lacking, False)
    pythons = {host: _python(answer) for host, answer in answers.values.items()}
    if len(set(pythons.values())) > 1:
        answers = again([host for host, python in pythons.items() if python != uv.PYTHON], True)
    return answers


def _python(answer: str) -> str:
    """The Python version of a host's bare engine; empty if it has none, or not the engine of this Muster version."""
    return install_bare.python_of(host_facts.bare_version(answer))


class _Bringer:
    """Brings the engine to several hosts: what goes to more than one of them is fetched once."""

    def __init__(self) -> None:
        self._own, self._fetching = settings.of_user(), threading.Lock()
        self._archives = dict[str, tuple[bytes, str]]()

    def bring(self, session: Session, same: bool) -> None:
        """Bring the engine, and Python if the host has none that the engine can use.

        `same`: it can use only the one that all hosts get.
        """
        lacks = install_bare.install(session, uv.PYTHON, same)
        if not lacks:
            return
        host = session.name
        archive, here = self._archive(host, lacks.machine)
        failed = install_bare.install_python(session, uv.PYTHON, archive) if archive else ""
        if failed or not archive:
            has = f"no container engine, and {f'only {lacks.old}' if lacks.old else 'no Python'}"
            reasons = (f"this machine: {here}" if here else "", f"{host}: {self._own.hidden(failed)}" if failed else "")
            raise DeployError(
                f"{host}: it has {'a different Python from the other hosts' if same else has}; Python {uv.PYTHON} "
                f"cannot be installed: {'; '.join(filter(None, reasons))}",
                f"on {host}: apt-get update && apt-get install python3 (3.11 or later); or set a mirror for uv "
                "here: export UV_PYTHON_INSTALL_MIRROR=URL",
            )
        audit.note(session, audit.Action.INSTALLED, f"Python {uv.PYTHON}")
        install_bare.install(session, uv.PYTHON, False)

    def _archive(self, host: str, machine: str) -> tuple[bytes, str]:
        """An archive with that Python, or with what downloads it on the host; and why this machine has none."""
        with self._fetching:
            if machine not in self._archives:
                self._archives[machine] = self._fetched(host, machine)
            return self._archives[machine]

    def _fetched(self, host: str, machine: str) -> tuple[bytes, str]:
        folder = store.own(folders.cache_folder() / "packages")
        try:
            return uv.python_for(machine, folder, self._own), ""
        except DeployError as fault:
            here = fault.message
        try:
            return uv.python_getter(host, machine, folder, self._own), here
        except DeployError as fault:
            return b"", "; ".join(dict.fromkeys((here, fault.message)))
