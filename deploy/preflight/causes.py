"""The slugs of all causes. docs/troubleshooting.md has an entry for each. Pure."""

from __future__ import annotations

CAUSES = frozenset(
    """
    address-overlap all-ports-dropped all-ports-rejected architecture-differs arp-unanswered arp-wrong between-ports
    bridge-network clock-skew command-missing connection-cut conntrack-full container-bridge cpu-low cuda-differs
    data-ports-dropped data-ports-rejected disk-full docker-down docker-missing docker-permission docker-refused
    docker-silent docker-wrapped driver-old duplicate-address duplicate-mac endpoint-foreign endpoint-loopback
    endpoint-nobody endpoint-twice endpoint-unresolvable engine-rootless fabric-manager fabric-unused family-mixed
    few-ports folder-readonly folder-silent gpu-arch gpu-busy gpu-driver gpu-faulty gpu-hidden gpu-lost gpu-missing
    gpu-peers gpu-persistence gpu-prohibited gpu-runtime gpu-silent gpu-slow gpu-xid gpus-differ gpus-shared
    home-readonly host-unreachable image-differs image-missing image-without-python inodes-full interface-down
    interface-loopback interface-missing interface-no-address interface-slow ipv6-blackhole leftovers link-delay
    link-local link-loss link-slow local-ports-used loopback-silent machine-twice memlock memory-low mount-closed
    mount-differs mount-missing mtu-blackhole mtu-differs name-foreign name-loopback name-unresolvable nccl-differs
    no-common-network no-iproute2 no-proof no-python no-route not-known one-way open-files other-network
    peer-name-unresolvable peer-name-wrong podman-command port-busy port-forbidden probe-died process-limits
    proof-failed python-differs python-old rdma-device rdma-differs rdma-down rdma-gid rdma-hidden rdma-library
    rdma-slow rendezvous-dropped rendezvous-rejected same-hostname settings-differ shm-small ssh ssh-host-key-changed
    ssh-host-key-unknown ssh-key ssh-lost ssh-name ssh-refused ssh-sessions ssh-shell ssh-silent ssh-slow ssh-timeout
    torch-differs torch-without-cuda wrong-machine
    """.split()  # noqa: SIM905 (130 quoted words would say less)
)
