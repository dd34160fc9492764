"""Why a host could not be examined: from the error text of SSH, the engine or `docker run` to a cause. Pure."""

from __future__ import annotations

import re

from ..ssh.faults import Kind

SSH: dict[Kind, str] = {
    "resolve": "ssh-name",
    "refused": "ssh-refused",
    "unreachable": "ssh-timeout",
    "timeout": "ssh-timeout",
    "silent": "ssh-silent",
    "dropped": "ssh-silent",
    "key-rejected": "ssh-key",
    "password-only": "ssh-key",
    "second-factor": "ssh-key",
    "unknown-key": "ssh-host-key-unknown",
    "changed-key": "ssh-host-key-changed",
    "revoked-key": "ssh-host-key-changed",
    "no-shell": "ssh-shell",
    "no-sh": "ssh-shell",
}
# What an engine says when it makes no container of the image, or none that runs; the first that fits.
START = (
    (r"could not select device driver|unresolvable CDI devices|unknown or invalid runtime", "gpu-runtime"),
    (r"nvml error|driver/library version mismatch|nvidia-container-cli", "gpu-driver"),
    (r"no space left on device", "disk-full"),
    (r"/dev/infiniband", "rdma-hidden"),
    (r"setting rlimit.*(RLIMIT_MEMLOCK|type 8)", "memlock"),
    (r"exec format error|does not match the detected host platform", "architecture-differs"),
    (r"no python in this image|exec python failed|exec: .sh.: executable file not found", "image-without-python"),
    (r"python3?\b.*(not found|no such file)", "no-python"),
    (r"too many open files", "open-files"),
    (r"bind source path does not exist", "mount-missing"),
    (r"no such image|unable to find image|failed to extract layer|layer does not exist", "image-missing"),
    (r"cannot allocate memory", "memory-low"),
    (r"cannot connect to the docker daemon", "docker-down"),
    (r"permission denied.*docker daemon", "docker-permission"),
    (r"error response from daemon|OCI runtime", "docker-refused"),
)
FIXES = {
    "gpu-runtime": "fab bootstrap --hosts {host} (installs nvidia-container-toolkit and tells Docker of it)",
    "gpu-driver": "on {host}: nvidia-smi; reboot, or reload the driver's module",
    "disk-full": "on {host}: df -h /var/lib/docker; docker system df",
    "rdma-hidden": "on {host}: sudo modprobe ib_uverbs",
    "memlock": "on {host}: the engine may not raise memlock: systemctl edit docker, LimitMEMLOCK=infinity",
    "architecture-differs": "an image built for {host}'s machine",
    "image-without-python": "an image with a shell, Python and torch in it",
    "no-python": "fab push first (the probe then runs in the image), or install python3 there (3.8 or newer)",
    "image-missing": "fab push --hosts {host}",
    "mount-missing": "on {host}: make that folder, or mount another (--mount, or mounts in cluster.toml)",
    "open-files": "docker run --ulimit nofile=1048576",
    "memory-low": "on {host}: free -h; ps aux --sort -rss | head",
    "docker-refused": "what Docker says, on {host}; journalctl -u docker | tail",
    "docker-down": "on {host}: sudo systemctl start docker",
    "docker-permission": "on {host}: sudo usermod -aG docker $USER, then log in anew",
    "probe-died": "fab preflight again; if it stays, look there at: dmesg | tail",
}


def ssh(kind: str) -> str:
    """The cause that a fault of SSH is, by its kind."""
    return next((slug for known, slug in SSH.items() if known == kind), "ssh")


def start(words: str) -> str:
    """The cause that the last words of a probe are, or of the container that was to hold it."""
    return next((slug for pattern, slug in START if re.search(pattern, words, re.IGNORECASE)), "probe-died")


def last_words(said: str) -> str:
    """What a command that ended said last, without the command; empty for anything else."""
    ended = re.search(r"(?:`|the probe) ended with code -?\d+: (.*)", said, re.DOTALL)
    return ended[1].strip() if ended else ""
