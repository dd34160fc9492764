"""What Docker prints when it refuses something, and the cause that it shows. Pure.

Only this module reads Docker's error texts. engine/, host/, image/, hosts/, preflight/ and explain/ use it, so the same
words lead to the same cause and the same hint everywhere.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from ..core.errors import DeployError
from .row import Row
from .table import ROWS


class Cause(NamedTuple):
    """A row of the table of causes, and Docker's words that show it.

    in_logs: only Docker prints these words, so they mean the same in any log. only: those of the words that have no
    other cause; None: all of them.
    """

    row: Row
    words: re.Pattern[str]
    in_logs: bool = False
    only: re.Pattern[str] | None = None

    @property
    def name(self) -> str:
        """The slug."""
        return self.row.slug

    @property
    def what(self) -> str:
        """The cause in a few words."""
        return self.row.what

    def proved_by(self, output: str) -> bool:
        """Whether a tool prints these words only for this cause. `No space left`, for example, has several causes."""
        return bool((self.only or self.words).search(output))


class DockerFault(DeployError):
    """Docker refused something on a host. `cause`: why, according to Docker's last `words`.

    `at`: the setting that sends the client to another engine than the host's own; empty: there is none.
    """

    def __init__(self, cause: Cause, message: str, hint: str, words: str = "", at: str = "") -> None:
        super().__init__(message, hint)
        self.cause, self.words, self.at = cause, words, at


# This pattern matches nothing.
_NOTHING = r"(?!)"
# Which operation on which path of the host failed, as Go programs report it. The path goes into a command that a user
# types, and a host chooses this text, so the pattern allows only plain paths.
_FAILED_AT = re.compile(
    r"\b(open|read|write|mkdir|stat|lstat|unlink|rename|chmod|chown|readlink|readdirent|symlink|remove|fork/exec) "
    r"(/[\w./:@+-]{1,200}): (is a directory|not a directory|no such file|file exists|permission denied|operation not "
    r"permitted|read-only file system|input/output error|too many levels|stale file|structure needs cleaning)",
    re.IGNORECASE,
)
_NO_UPGRADE = re.compile(r"unable to upgrade to \w{1,20}, received \d{3}")
# The file for which there was no room; the same caution applies to its path.
_NO_ROOM_AT = re.compile(r"(/[\w./-]{1,200})/[\w.-]{1,200}: (?:no space left on device|disk quota)", re.IGNORECASE)


_THREADS = r"create new OS thread|pthread_create|newosproc|cannot fork|start new thread|clone3?\b"
# Docker before 20.10.10 lets clone3 fail with EPERM, but the C library of new images starts threads with clone3.
SECCOMP_FIX = (
    "on {host}: docker version; grep -s seccomp /etc/docker/daemon.json; update Docker there (since 20.10.10 "
    "its rules let threads start), or remove the seccomp profile and restart Docker"
)
# The engine's own programs, as they follow `fork/exec /usr/bin/` or `exec: "` in an error.
_STARTER = r"(?:fork/exec |exec: .{0,2})(?:/[\w./-]{1,100}/)?(?:runc|crun|containerd-shim[\w-]{0,20}|docker-init|tini)"


def _sign(
    slug: str, words: str, in_logs: bool = False, only: str | None = None, what: str = "", command: str = ""
) -> Cause:
    row = ROWS[slug]
    row = replace(row, what=what, command=command) if what else row
    proof = None if only is None else re.compile(only, re.IGNORECASE)
    return Cause(row, re.compile(words, re.IGNORECASE), in_logs, proof)


# The first match counts. The patterns have no unbounded gaps, because a host chooses the text.
CAUSES = (
    # If the engine's program that starts containers does not start, the image is not at fault.
    _sign(
        "docker-refused",
        rf"{_STARTER}.{{0,3}}: (?:exec format error|permission denied|no such file|executable file not found|"
        r"input/output)|unable to retrieve OCI runtime error",
        what="the program that the engine uses to start containers does not start",
        command="on {host}: runc --version; sudo apt-get install --reinstall containerd.io (or runc, or dnf "
        "reinstall); sudo systemctl restart containerd docker",
    ),
    _sign(
        "gpu-runtime",
        r"could not select device driver|unresolvable CDI devices|stat CDI host device|"
        r"unknown or invalid runtime.{0,20}nvidia|nvidia\.com/gpu=[\w:.-]{1,80}.?: no such file|"
        r"unknown runtime specified nvidia|nvidia-container-runtime.{0,80}not found|nvidia-docker: command not found|"
        r"executing hook .{0,3}/\S{1,80}/nvidia-",
        in_logs=True,
    ),
    _sign(
        "gpu-driver",
        r"nvml error|driver/library version mismatch|nvidia-container-cli",
        only=r"nvml error|driver/library version mismatch",
    ),
    _sign("disk-full", r"no space left on device|disk quota exceeded", only=_NOTHING),
    _sign("rdma-hidden", r"/dev/infiniband", only=r"custom device .{0,3}/dev/infiniband"),
    _sign("memlock", r"setting rlimit.{0,80}(?:RLIMIT_MEMLOCK|type 8)"),
    _sign(
        "architecture-differs",
        r"exec format error|does not match the detected host platform|no matching manifest for",
        in_logs=True,
        only=r"does not match the detected host platform|no matching manifest for",
    ),
    _sign(
        "image-without-python",
        r"no python in this image|exec (?:python|sh) failed|exec: .{1,2}sh.{1,2}: executable file not found",
    ),
    _sign(
        "no-python",
        r"python3?\b.{0,80}(?:not found|no such file)",
        only=r"\bpython3?: (?:command )?not found|command not found: python3?|exec: .{1,2}python3?.{1,2}: executable",
    ),
    _sign("open-files", r"too many open files", only=_NOTHING),
    _sign(
        "mount-missing",
        r"bind source path does not exist(?:: (\S{1,200}))?|error mounting|invalid mount config",
        in_logs=True,
        only=r"bind source path does not exist",
    ),
    _sign(
        "image-missing",
        r"no such image|failed to extract layer|layer does not exist|"
        r"image .{0,200}not found locally",
        only=r"no such image|not found locally",
    ),
    _sign(
        "memory-low", r"cannot allocate memory|fatal error:.{0,80}(?:out of memory|failed to reserve)", only=_NOTHING
    ),
    # The kernel reports EPERM here; a resource limit would be EAGAIN.
    _sign(
        "docker-refused",
        rf"(?:{_THREADS}).{{0,60}}operation not permitted|seccomp.{{0,40}}(?:denied|not permitted)",
        what="a rule of the engine (seccomp) forbids new threads; no limit does",
        command=SECCOMP_FIX,
    ),
    _sign(
        "process-limits",
        r"failed to create new OS thread|pthread_create failed|newosproc|cannot fork|"
        r"fork: resource temporarily unavailable|can't start new thread",
        only=_NOTHING,
    ),
    _sign(
        "docker-refused",
        r"apparmor (?:enabled on|failed to apply|profile docker-default)",
        in_logs=True,
        what="AppArmor keeps the engine from starting containers",
        command="on {host}: sudo aa-status; journalctl -k | grep -i apparmor | tail; sudo systemctl restart apparmor "
        "docker",
    ),
    _sign("docker-silent", r"no answer within \d+ s", only=_NOTHING),
    _sign("podman-command", r"this docker is Podman's own command"),
    _sign("docker-wrapped", r"this docker prints lines of its own"),
    _sign("engine-rootless", r"this engine is rootless"),
    _sign("docker-missing", r"docker: (?:command )?not found|command not found: docker"),
    _sign(
        "docker-down",
        r"cannot connect to the docker daemon|docker\.sock: connect: (?:no such file|connection refused)|"
        r"is a folder, not a socket",
        in_logs=True,
        only=r"docker daemon at unix:///(?:var/)?run/docker\.sock|docker\.sock: connect: (?:no such file|connection "
        r"refused)|is a folder, not a socket",
    ),
    _sign(
        "docker-permission",
        r"permission denied.{0,80}docker (?:daemon|api)|docker\.sock: connect: permission denied",
        in_logs=True,
    ),
    _sign("docker-refused", rf"error response from daemon|OCI runtime|{_NO_UPGRADE.pattern}", only=_NOTHING),
)
_QUOTED = (
    "docker-missing",
    "docker-down",
    "docker-silent",
    "docker-refused",
    "docker-wrapped",
    "memory-low",
    "process-limits",
)
_BY_NAME = {cause.name: cause for cause in CAUSES}
NO_DOCKER = _BY_NAME["docker-missing"]


def cause_of_slug(name: str) -> Cause:
    """Return the cause with this slug."""
    return _BY_NAME[name]


def lacks_image(output: str) -> bool:
    """Whether the engine reports that it does not have an image."""
    return any(words in output.lower() for words in ("no such image", "no such object"))


def lacks_container(output: str) -> bool:
    """Whether the engine reports that a container does not exist, or no longer exists."""
    return "no such container" in output.lower()


def gives_no_connection(output: str) -> bool:
    """Whether the client reports that its request was not upgraded to a connection, which attach and exec need."""
    return bool(_NO_UPGRADE.search(output))


def disk_is_full(output: str) -> bool:
    """Whether a program in a container, or the engine, reports that the disk is full."""
    return bool(cause_of_slug("disk-full").words.search(output))


def engine_failed(output: str) -> bool:
    """Whether Docker failed to show an image for another reason than that the image is missing."""
    return bool(output.strip()) and not lacks_image(output)


def read_cause(output: str) -> Cause | None:
    """Return the cause that Docker's words show, or None."""
    return next((cause for cause in CAUSES if cause.words.search(output)), None)


def hint(output: str, host: str, otherwise: str = "docker-refused") -> str:
    """Return the next command on a host that printed these words; if they show no cause, that of `otherwise`."""
    cause = read_cause(output) or cause_of_slug(otherwise)
    if cause.name == "disk-full" and (place := _NO_ROOM_AT.search(output)):
        return cause.row.hint(host).replace("/var/lib/docker", f"{place[1]}; df -i {place[1]}")
    if cause.name == "docker-refused" and gives_no_connection(output):
        look = "docker context ls; echo $DOCKER_HOST"
        own = "let the client use the engine's own socket, or let the proxy forward Upgrade: tcp"
        return f"on {host or 'that host'}: {look}   ({own})"
    # Paths in an error of the OCI runtime are inside the container, so they are of no use on the host.
    failed = None if "OCI runtime" in output else next(reversed([*_FAILED_AT.finditer(output)]), None)
    if cause is cause_of_slug("docker-refused") and failed:
        gone = "   (a link to a disk that is not mounted?)" if failed[3].lower() == "no such file" else ""
        return f"on {host or 'that host'}: sudo ls -ld {_looked_at(failed)}; journalctl -u docker | tail{gone}"
    return cause.row.hint(host)


def _looked_at(failed: re.Match[str]) -> str:
    """Return the path to look at; if a folder could not be made, its parent."""
    path = failed[2].rstrip("/")
    return path.rpartition("/")[0] or "/" if failed[1].lower() == "mkdir" else path


def elsewhere(at: str, host: str = "") -> str:
    """Return the next command if `DOCKER_HOST=URL` or `context NAME` (`at`) sends the client to another engine."""
    variable = at.partition("=")[0] if "=" in at else ""
    mend = f"unset {variable}; grep -n {variable} ~/.bashrc ~/.profile /etc/environment" if variable else (
        "docker context use default; docker context ls"
    )  # fmt: skip
    return f"on {host or 'that host'}: {mend}   (its client uses {at}), or start the engine that this address leads to"


def unanswered(words: str, host: str = "", at: str = "") -> DockerFault:
    """Return the fault of an engine that does not answer, from its client's last words. `at`: see DockerFault."""
    crashed = re.match(r"runtime(?:/cgo)?: |fatal error: |panic: ", words)
    return fault(words or "it said nothing", "docker-refused" if crashed else "docker-down", host, at)


def fault(output: str, otherwise: str = "docker-refused", host: str = "", at: str = "") -> DockerFault:
    """Return the fault that Docker's words show; if they show none, `otherwise` is the cause. `at`: see DockerFault."""
    cause = read_cause(output) or cause_of_slug(otherwise)
    last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "no message")
    quoted = cause.name in _QUOTED
    at = at if cause.name in ("docker-down", "docker-silent") else ""
    next_command = elsewhere(at, host) if at else hint(output, host, otherwise)
    return DockerFault(cause, f"{cause.what}: {last}" if quoted else cause.what, next_command, last, at)
