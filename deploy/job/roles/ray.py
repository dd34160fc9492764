"""A Ray cluster as roles: a head, which runs the driver where there is one, and workers. Pure.

Ray is the user's: it comes with the image, or with the run's packages. Its daemons are not watched: what they start is
theirs. Its dashboard listens on loopback alone; `port` brings it here.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from ...core.errors import UsageError
from ..options import FLAG
from .role import Role

PORT = 6379
_RESTARTS = 100
# Ray sizes its object store by the container's shared memory, if nobody names a size.
_RAY = "env -u MUSTER_LIFE -u MUSTER_OUTCOME_DIR ray start --disable-usage-stats --node-ip-address $MUSTER_ROLE_HOST"
_HEAD = f"{_RAY} --head --port {PORT} --dashboard-host 127.0.0.1"
_ALL = (
    "import ray, time; ray.init(log_to_driver=False); "
    "[time.sleep(0.2) for _ in iter(lambda: sum(node['Alive'] for node in ray.nodes()) >= {hosts}, True)]"
)


def ray_roles(hosts: Sequence[str], driver: Sequence[str]) -> tuple[str, ...]:
    """The roles of a cluster on these hosts, as --role has them. `driver`: its command; without one, the cluster stays.

    The first host is the head. A worker that is lost comes back; the driver starts once all hosts are there.
    """
    if len(hosts) < 1:
        raise UsageError("a Ray cluster needs a host", f"{FLAG.hosts} a,b,c")
    if driver:
        words = ["python", *driver] if driver[0].endswith(".py") else driver
        wait = f"python -c {shlex.quote(_ALL.format(hosts=len(hosts)))}"
        head = f"{_HEAD} && export RAY_ADDRESS=$MUSTER_HEAD_ADDRESSES && {wait} && exec {shlex.join(words)}"
    else:
        head = f"exec {_HEAD} --block"
    roles = [Role("head", _in_bash(head), 1, (hosts[0],), ends=bool(driver), port=PORT, ready="port")]
    if hosts[1:]:
        join = f"exec {_RAY} --address $MUSTER_HEAD_ADDRESSES --block"
        worker = Role("worker", _in_bash(join), len(hosts) - 1, tuple(hosts[1:]), restart=_RESTARTS)
        roles.append(replace(worker, separate=True, after=("head",)))
    return tuple(role.text for role in roles)


def _in_bash(text: str) -> str:
    return shlex.join(["bash", "-c", text])
