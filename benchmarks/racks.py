"""A rack of our own to measure on: hosts with sshd and a Docker engine, gone at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from deploy.job.cluster import from_flag
from deploy.job.inventory import Host
from lab.rack import Rack, make


@contextmanager
def rack(nodes: int, store: str) -> Iterator[Rack]:
    """`make rack` under a name of its own; MUSTER_SSH_CONFIG names it meanwhile."""
    made, before = Rack("bench", nodes), os.environ.get("MUSTER_SSH_CONFIG")
    _make("rack", RACK=made.name, NODES=nodes, STORE=store)
    os.environ["MUSTER_SSH_CONFIG"] = str(made.ssh_config)
    try:
        yield made
    finally:
        os.environ.pop("MUSTER_SSH_CONFIG") if before is None else os.environ.update(MUSTER_SSH_CONFIG=before)
        _make("rack-down", RACK=made.name)


def _make(target: str, **options: object) -> None:
    if (done := make(target, **options)).returncode:
        raise RuntimeError(f"make {target}: {done.stderr}")


def inventory(of: Rack) -> tuple[Host, ...]:
    """Its hosts for `deploy.door.session.open_all`."""
    return from_flag(",".join(of.hosts)).hosts
