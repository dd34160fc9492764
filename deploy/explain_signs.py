"""What a failed run's output may say, and what that shows: words that belong to one cause, and words of victims. Pure.

The texts are those of torch 2.13, gloo and NCCL as recorded in tests/lab/recordings/ or quoted in the issues that
docs/troubleshooting.md names. Order matters: the first sign that is found is the cause.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFLIGHT = "fab preflight --hosts ..."


@dataclass(frozen=True)
class Sign:
    """Words that show `cause`. what: for a person, {0} being what the pattern caught. maybe: what says the same."""

    cause: str
    pattern: re.Pattern[str]
    what: str
    next: str = PREFLIGHT
    maybe: tuple[str, ...] = ()


def _sign(cause: str, pattern: str, what: str, then: str = PREFLIGHT, *maybe: str) -> Sign:
    return Sign(cause, re.compile(pattern), what, then, maybe)


# Words that only one cause, or few, would make torch, gloo, NCCL or Docker say.
SIGNS = (
    _sign("interface-missing", r"Unable to find address for: (\S+)", "there is no interface {0} with an address there",
          "ip -br addr", "interface-no-address", "interface-down"),
    _sign("interface-missing", r"no socket interface found", "NCCL_SOCKET_IFNAME names no interface of this host",
          "ip -br addr", "interface-no-address"),
    _sign("few-ports", r"gloo/transport/tcp/socket\.cc:\d+\].* bind: Address already in use",
          "no port was left in the system's range for gloo to listen on", "sysctl net.ipv4.ip_local_port_range"),
    _sign("few-ports", r"errno: 99 - Cannot assign requested address",
          "no address or port was left to call from", "sysctl net.ipv4.ip_local_port_range", "family-mixed"),
    _sign("family-mixed", r"ss1?\.ss_family == ss2\.ss_family",
          "some nodes use IPv4 for the gradients and others IPv6", PREFLIGHT, "interface-no-address", "link-local",
          "name-loopback"),
    _sign("settings-differ", r"makeDeviceForInterface\(\): unsupported gloo device",
          "a variable asks gloo for a transport that this torch has not", "env | grep GLOO_DEVICE_TRANSPORT"),
    _sign("port-busy", r"(?:listen on any local network address\. port: (\d+).*|error.*)EADDRINUSE",
          "port {0} is taken on the first host", "ss -ltnp"),
    _sign("container-bridge", r"remote=\[(172\.(?:1[7-9]|2\d|3[01])\.[\d.]+|10\.88\.[\d.]+)\]",
          "a node gave the address of a container bridge, {0}, to its peers", PREFLIGHT, "bridge-network",
          "other-network"),
    _sign("name-unresolvable", r"Unable to resolve hostname to a \(local\) address",
          "a host cannot resolve its own name", "getent hosts $(hostname)", "name-loopback"),
    _sign("name-unresolvable", r"gaierror: \[Errno -[235]\]", "a host cannot resolve a name, likely its own",
          "getent hosts $(hostname)", "endpoint-unresolvable", "peer-name-unresolvable"),
    _sign("name-loopback", r"remote=\[(127\.[\d.]+|::1)\]",
          "a node gave its loopback address, {0}, to its peers: its own name leads there", "getent hosts $(hostname)",
          "interface-loopback", "name-unresolvable"),
    _sign("other-network", r"failed to connect.* remote=\[([^]]+)\].*(?:Network is unreachable|No route to host)",
          "a node gave an address that its peers have no way to: {0}", PREFLIGHT, "no-route", "host-unreachable"),
    _sign("data-ports-rejected", r"(?:failed to connect|connectFullMesh).*Connection refused.*remote=\[([^]]+)\]",
          "{0} takes part in the rendezvous and refuses the connections for the gradients", PREFLIGHT),
    _sign("data-ports-rejected", r"failed to connect.* remote=\[([^]]+)\].*Connection refused",
          "{0} takes part in the rendezvous and refuses the connections for the gradients", PREFLIGHT),
    _sign("data-ports-dropped", r"failed to connect.* remote=\[([^]]+)\].*(?:[Tt]imed? ?out)",
          "{0} takes part in the rendezvous and does not answer the connections for the gradients", PREFLIGHT,
          "other-network", "host-unreachable"),
    _sign("other-network", r"tcp/socket\.cc:\d+\].* connect: (?:Network is unreachable|No route to host)",
          "a node gave an address that its peers have no way to", PREFLIGHT, "no-route", "link-local"),
    _sign("clock-skew", r"the world has (\d+) ranks, planned were",
          "{0} ranks came together: torch took living nodes for dead, as when clocks differ", "timedatectl"),
    _sign("shm-small", r"unable to allocate shared memory|failed to extend /dev/shm|killed by signal: Bus error",
          "/dev/shm is too small", "df -h /dev/shm"),
    _sign("open-files", r"Too many open files", "the limit of open files is too low", "ulimit -n"),
    _sign("disk-full", r"No space left on device|No usable temporary directory", "a disk is full", "df -h; df -i"),
    _sign("nccl-differs", r"Mismatched NCCL version detected", "the nodes have different NCCL versions"),
    _sign("gpus-shared", r"Duplicate GPU detected", "two ranks use one GPU: set the device from LOCAL_RANK",
          "fab gpus --hosts ..."),
    _sign("gpu-driver", r"Driver/library version mismatch", "the NVIDIA driver was updated and not reloaded",
          "nvidia-smi"),
    _sign("gpu-driver", r"CUDA driver version is insufficient", "the driver is older than the image's CUDA",
          "nvidia-smi"),
    _sign("gpu-faulty", r"Error 802|system not yet initialized", "the fabric manager is not running",
          "systemctl status nvidia-fabricmanager"),
    _sign("gpu-faulty", r"uncorrectable ECC|fallen off the bus|Xid.*: (\d+)", "a GPU is broken", "nvidia-smi -q"),
    _sign("gpu-runtime", r"could not select device driver", "Docker has no NVIDIA runtime there",
          "fab bootstrap --hosts ..."),
    _sign("gpu-arch", r"no kernel image is available for execution", "this torch was not built for that GPU",
          "python -c 'import torch; print(torch.cuda.get_arch_list())'"),
    _sign("gpu-memory", r"(?:CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError)", "a GPU's memory is full",
          "fab gpus --hosts ..."),
    _sign("memlock", r"ibv_reg_mr failed|ibv_create_\w+ failed.*Cannot allocate memory",
          "locked memory is limited", "ulimit -l"),
    _sign("rdma", r"ibv_modify_qp failed|wc error 12|vendor err 129", "the RDMA connection is not set up right",
          "NCCL_DEBUG=INFO, and see the GID index"),
    _sign("docker-permission", r"permission denied while trying to connect to the Docker daemon",
          "this user may not use Docker", "sudo usermod -aG docker $USER"),
    _sign("architecture-differs", r"exec format error", "the image is for another kind of processor", "uname -m"),
    _sign("collectives-differ", r"op\.preamble\.length <= op\.nbytes",
          "two ranks called all_reduce with tensors of different sizes", "TORCH_DISTRIBUTED_DEBUG=DETAIL"),
    _sign("unused-parameters", r"Expected to have finished reduction in the prior iteration",
          "some parameters got no gradient", "DistributedDataParallel(..., find_unused_parameters=True)"),
    _sign("ssh-hangup", r"got signal: 1\b", "the SSH session ended and took the run with it", "fab deploy --detach"),
    _sign("killed", r"exitcode\s*: -9 \(|Signal 9 \(SIGKILL\)", "a process was killed, most often for memory",
          "dmesg | grep -i oom"),
    _sign("container-missing", r"No such image|pull access denied|manifest unknown", "the image is not there",
          "fab push --hosts ..."),
)  # fmt: skip

# What a node says when another one failed: never a cause.
VICTIMS = re.compile(
    r"Connection (?:closed|reset) by peer|Broken pipe|got 0 bytes|Timed out waiting \d+ms for (?:send|recv)|"
    r"got signal: 15|exitcode\s*: -15|remote process exited|ncclRemoteError|RendezvousClosedError|"
    r"Watchdog caught collective operation timeout|clients joined|wait timeout after \d+ms|"
    r"NCCL communicator was aborted"
)
