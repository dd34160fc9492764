"""Fake GPUs on a rack host, because a rack has none; they call themselves "Fake GPU".

`nvidia-smi` answers like the real one; /tmp/computing lists the processes that compute, as `UUID, PID, MIB, NAME`, one
a line. An empty `nvidia-container-runtime-hook` makes the engine accept `docker run --gpus`, and note which GPUs were
given.
"""

from __future__ import annotations

from contextlib import contextmanager

UUIDS = tuple(f"GPU-{number:08x}-6340-7969-a79f-b937f3583884" for number in range(4))
SMI, HOOK = "/usr/local/bin/nvidia-smi", "/usr/local/bin/nvidia-container-runtime-hook"
_SMI = """#!/bin/sh
case "$*" in
*query-compute-apps*) cat /tmp/computing 2>/dev/null ;;
*query-gpu*) %s ;;
esac
exit 0
"""
_ENGINE = """
pkill -x dockerd; while pgrep -x dockerd >/dev/null; do sleep 0.1; done
setsid dockerd >/var/log/dockerd.log 2>&1 &
until docker version >/dev/null 2>&1; do sleep 0.2; done
"""


def smi(count: int = 4) -> str:
    """A stub for nvidia-smi with this number of GPUs."""
    used = [f"echo '{index}, {uuid}, 4, 81920, 0, Fake GPU'" for index, uuid in enumerate(UUIDS[:count])]
    return _SMI % "; ".join(used)


@contextmanager
def on_host(rack, host, count=4):
    """Give the host GPUs until the end of the `with`. No container may run there at its start and end."""
    put = f'printf %s "$1" >{SMI}; printf "#!/bin/sh\\n" >{HOOK}; chmod 755 {SMI} {HOOK}; rm -f /tmp/computing'
    rack.root(host, "sh", "-c", put + _ENGINE, "put", smi(count), timeout=60)
    try:
        yield
    finally:
        rack.root(host, "sh", "-c", f"rm -f {SMI} {HOOK} /tmp/computing;" + _ENGINE, timeout=60)
