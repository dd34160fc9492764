"""`python -m muster.ray head [COMMAND]`, `python -m muster.ray worker`: a host's part in a Ray cluster.

The two are the commands of the roles `head` and `worker` (docs/how-to/ray.md), which `muster ray` creates. The head
starts Ray, waits until every worker has joined, and then replaces itself with COMMAND; without COMMAND it keeps
running. The run sets the addresses, the head's port, the GPUs and a secret (docs/reference/variables.md); this module
decides what is specific to Ray.

- Only programs of this run can use the cluster: its secret is Ray's token. Ray reads the token from HOME/.ray, so that
  `muster exec -- ray status` has it too. Ray before 2.52 has no token.
- All ports except the head's are free ports that the system or Ray chooses, so that several clusters fit on one host.
  Ray's own programs listen on every address; ports that no token protects are closed, or listen on loopback.
- Ray starts without torchrun's variables: with them, its workers would believe that they are ranks.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from .errors import REFUSED
from .files import write_own

HEAD, WORKER = "head", "worker"
# Ray's own processes need shared memory, too: the object store gets only this share, and at least Ray's minimum.
_SHARE, _STORE_LEAST = 0.8, 80 << 20
_REACH_S, _JOIN_S, _LOOK_S = 30.0, 300.0, 0.5
_FIREWALL = "is a firewall between them?"
# The variables that torchrun, its options' variables and --style set for a rank (trainer/node/launch/bare.py).
OF_TORCHRUN = (
    r"(PET|TORCHELASTIC|ROLE|GROUP)_\w+|(LOCAL_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|NNODES|NODE_RANK|"
    r"TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
)
# Also: how many threads torchrun's ranks use. And the variables because of which a Python process is watched as a rank.
_OF_A_RANK = OF_TORCHRUN + "|OMP_NUM_THREADS|MUSTER_ROLE_SECRET"
_WATCHED = ("MUSTER_OUTCOME_DIR", "MUSTER_LIFE")
# Ray serves its Prometheus metrics to anybody, on every address. With a port that cannot be bound, nothing listens.
_CLOSED = {"RAY_enable_metrics_collection": "0", "AUTOSCALER_METRIC_PORT": "-1", "DASHBOARD_METRIC_PORT": "-1"}


def start_words(part: str, given: Mapping[str, str], shared: int, cpus: int, client: int = 0) -> list[str]:
    """The arguments of `ray start` for this host.

    `shared`: the size of its shared memory in bytes. `client`: the port of Ray Client. Raises KeyError if a variable of
    the run is missing.
    """
    own, store = given["MUSTER_ROLE_HOST"], max(_STORE_LEAST, int(shared * _SHARE))
    words = ["start", "--block", "--disable-usage-stats", f"--node-ip-address={own}", f"--num-cpus={cpus}"]
    words += [f"--num-gpus={given['MUSTER_ROLE_GPUS']}", f"--object-store-memory={store}"]
    words += ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]
    if part == WORKER:
        return [*words, f"--address={_head(given)}"]
    words += ["--head", f"--port={given['MUSTER_ROLE_PORT']}", "--dashboard-host=127.0.0.1"]
    return [*words, f"--ray-client-server-port={client}"] if client else words


def ray_environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment of Ray's own processes, made from a rank's environment."""
    return {**_CLOSED, **{name: value for name, value in driver_environment(given).items() if name not in _WATCHED}}


def driver_environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment of COMMAND, which is not a rank, but is watched as the program of this role."""
    own = {name: value for name, value in given.items() if not re.fullmatch(_OF_A_RANK, name)}
    own |= {"RAY_AUTH_MODE": "token"} if given.get("MUSTER_ROLE_SECRET") else {}
    return {**own, "RAY_ADDRESS": _head(given)}


def _head(given: Mapping[str, str]) -> str:
    """The address where the head listens."""
    return given["MUSTER_HEAD_ADDRESSES"].partition(",")[0]


def main(words: Sequence[str]) -> None:
    """Run as the head or a worker of this run's Ray cluster until the run ends."""
    part, *command = words or ("",)
    if part not in (HEAD, WORKER) or (part == WORKER and command):
        _end("not `head [COMMAND]`, nor `worker`", "python -m muster.ray head python train_rl.py")
    # Python must not import a file ray.py, or a folder ray, from the user's folder.
    sys.path[:] = [each for each in sys.path if each not in ("", os.getcwd())]
    if find_spec("ray") is None:
        _end("this host's Python has no package ray", "add a line ray[default] to the folder's requirements.txt")
    given = dict(os.environ)
    if "MUSTER_HEAD_ADDRESSES" not in given:
        what = "MUSTER_HEAD_ADDRESSES is not set: there is no role head with a port"
        _end(what, "muster ray, or roles as docs/how-to/ray.md")
    if command and (command[0] in ("python", "python3", "-m") or command[0].endswith(".py")):
        command = [sys.executable, *command[command[0] in ("python", "python3") :]]
    if command and not shutil.which(command[0]):
        _end(f"{command[0]}: this host has no such program", "a program, or a file.py")
    if secret := given.get("MUSTER_ROLE_SECRET"):
        _keep_token(secret)
    # Ray Client starts wherever it can run, and cannot be turned off.
    client = _free_port() if part == HEAD and find_spec("grpc") else 0
    start = start_words(part, given, shutil.disk_usage("/dev/shm").free, len(os.sched_getaffinity(0)), client)  # type: ignore[attr-defined,unused-ignore]
    ray = [sys.executable, "-P", "-c", "from ray.scripts.scripts import main; main()", *start]
    if part == WORKER:
        _until(lambda: unreachable(_head(given)), _REACH_S, _FIREWALL)
        os.execve(sys.executable, ray, ray_environment(given))
    # In its own process group, so that a stop reaches only the command, which may still use Ray while it saves.
    started = subprocess.Popen(ray, env=ray_environment(given), stdout=subprocess.DEVNULL, process_group=0)
    try:
        _wait_for_all(started, given)
        if not command:
            signal.signal(signal.SIGTERM, lambda *_: started.terminate())
            sys.exit(started.wait())
        os.execvpe(command[0], command, driver_environment(given))
    finally:  # not reached once a command has begun
        started.terminate()


def _keep_token(secret: str) -> None:
    """Write the token to the file where Ray reads it. Nodes that share a home folder may do so at the same time."""
    path = Path.home() / ".ray" / "auth_token"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            write_own(path, secret)
    except OSError as fault:
        _end(f"Ray reads its token from HOME/.ray, but the token cannot be stored there: {fault}", "--env HOME=/tmp")


def _until(look: Callable[[], str], seconds: float, hint: str, ray: subprocess.Popen[bytes] | None = None) -> None:
    """Call `look` until it returns an empty text; after `seconds`, end with the fault that it returns.

    `ray`: the head's `ray start`; if that process ends, this program ends with an error too.
    """
    end = time.monotonic() + seconds
    while True:
        if ray and (code := ray.poll()) is not None:
            _end(f"`ray start` ended with code {code}", "its output is above, and in /tmp/ray/session_latest/logs")
        if not (wrong := look()):
            return
        if time.monotonic() > end:
            _end(wrong, hint)
        time.sleep(_LOOK_S)


def unreachable(address: str) -> str:
    """Why the head cannot be reached, or an empty text. Ray itself would try for minutes without a clear message."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), 5.0).close()
    except OSError as fault:
        return f"the head's port {address} cannot be reached from here ({(fault.strerror or 'no answer').lower()})"
    return ""


def _wait_for_all(started: subprocess.Popen[bytes], given: Mapping[str, str]) -> None:
    """Wait until every host of the run is in the cluster. `started`: this host's `ray start`."""
    _until(lambda: unreachable(_head(given)), _JOIN_S, _FIREWALL, started)
    hosts = ",".join(given.get(f"MUSTER_{role}_HOSTS", "") for role in ("HEAD", "WORKER"))
    wanted = Counter(re.findall("[^,]+", hosts))
    os.environ.update(ray_environment(given))
    import ray

    if dashboard := ray.init(address=_head(given), logging_level="ERROR", log_to_driver=False).dashboard_url:
        port = dashboard.rpartition(":")[2]
        print(f"the dashboard: muster port {port}, and the token: muster exec --rank 0 ray get-auth-token")
    print(f"waiting for {wanted.total()} hosts to join the Ray cluster", flush=True)

    def missing() -> str:
        late = sorted(wanted - Counter(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]))
        return f"{', '.join(late[:5])} did not join the Ray cluster within {_JOIN_S:.0f} s" if late else ""

    _until(missing, _JOIN_S, "muster logs --rank all shows why", started)
    ray.shutdown()


def _free_port() -> int:
    with socket.create_server(("", 0)) as probe:
        return int(probe.getsockname()[1])


def _end(what: str, hint: str) -> NoReturn:
    print(f"muster.ray: error: {what}\nhint: {hint}", file=sys.stderr, flush=True)
    sys.exit(REFUSED)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    main(sys.argv[1:])
