"""Every cause there is, by its slug: each has an entry of that name in docs/troubleshooting.md. Pure."""

from __future__ import annotations

CAUSES = frozenset(
    """
    all-ports-dropped all-ports-rejected architecture-differs bridge-network clock-skew
    conntrack-full container-bridge cuda-differs data-ports-dropped data-ports-rejected
    disk-full docker-down docker-missing docker-permission duplicate-address
    endpoint-foreign endpoint-loopback endpoint-nobody endpoint-twice endpoint-unresolvable
    family-mixed few-ports gpu-busy gpu-driver gpu-faulty
    gpu-missing gpu-runtime gpus-differ host-unreachable image-differs
    inodes-full interface-down interface-loopback interface-missing interface-no-address
    interface-slow ipv6-blackhole leftovers link-local link-loss
    link-slow memlock memory-low mtu-blackhole mtu-differs
    name-foreign name-loopback name-unresolvable nccl-differs no-proof
    no-python no-route one-way open-files other-network
    peer-name-unresolvable peer-name-wrong port-busy probe-died proof-failed
    python-differs rendezvous-dropped rendezvous-rejected same-hostname settings-differ
    shm-small ssh torch-differs wrong-machine
    """.split()  # noqa: SIM905 (69 quoted words would say less)
)
