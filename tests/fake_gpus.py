"""GPUs that do not exist, on a host of a rack: a named fake, for a rack has none.

`nvidia-smi` answers as the real one does; who computes is in /tmp/computing, `UUID, PID, MIB, NAME` a line. An empty
`nvidia-container-runtime-hook` makes the engine accept `docker run --gpus`, and note which were given.
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
    """A stand-in for nvidia-smi with so many GPUs."""
    used = [f"echo '{index}, {uuid}, 4, 81920, 0, Fake GPU'" for index, uuid in enumerate(UUIDS[:count])]
    return _SMI % "; ".join(used)


@contextmanager
def on_host(rack, host, count=4):
    """The host has GPUs as long as this lasts. No container may run there at its start and end."""
    put = f'printf %s "$1" >{SMI}; printf "#!/bin/sh\\n" >{HOOK}; chmod 755 {SMI} {HOOK}; rm -f /tmp/computing'
    rack.root(host, "sh", "-c", put + _ENGINE, "put", smi(count), timeout=60)
    try:
        yield
    finally:
        rack.root(host, "sh", "-c", f"rm -f {SMI} {HOOK} /tmp/computing;" + _ENGINE, timeout=60)
