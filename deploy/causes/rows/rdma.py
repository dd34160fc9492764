"""Causes: InfiniBand and RoCE. Data."""

from ..end_causes import Cause
from ..row import Row, Section

SECTIONS = (
    Section(
        "InfiniBand and RoCE",
        (
            Row(
                "rdma-down",
                (
                    "NCCL ignores the host's RDMA ports and uses sockets; it hangs if the peers use RDMA. The "
                    "state INIT means that no subnet manager answers."
                ),
                by_hand="`ibstat`, `cat /sys/class/infiniband/*/ports/*/state`",
                fix="Check the cable, the switch and the subnet manager (`opensm`).",
                source="docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
                command=(
                    "on {host}: ibstat; then check the cable, the switch and the subnet manager (INIT means "
                    "that none answers)"
                ),
                symptom="a hang in NCCL's init, or `NET/Socket` where peers say `NET/IB`",
                ends=Cause.CUT_OFF,
            ),
            Row(
                "rdma-device",
                "`NCCL_IB_HCA` names devices that this host lacks, so NCCL uses no RDMA there.",
                by_hand="`ls /sys/class/infiniband`, `env | grep NCCL_IB_HCA`",
                fix="Set the right names for each host (its `environment` in cluster.toml), or unset it.",
                source="docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca",
                command="set a device that the host has",
                symptom="`Failed to initialize any NET plugin`",
            ),
            Row(
                "rdma-hidden",
                (
                    "`NET/Socket` in `NCCL_DEBUG=INFO` although the host has InfiniBand: the container has no "
                    "access to it."
                ),
                by_hand="`ls /dev/infiniband` in the container",
                fix=(
                    "`docker run --device /dev/infiniband --ulimit memlock=-1` (`muster deploy` does so). If the host "
                    "itself lacks the folder: `sudo modprobe ib_uverbs`."
                ),
                source="NVIDIA/nccl #451, #925",
                what="the host has no RDMA devices",
                command="on {host}: sudo modprobe ib_uverbs",
                symptom="a hang in NCCL's init, or `NET/Socket` where peers say `NET/IB`",
                others=("permissions on the devices",),
                explains="memlock",
            ),
            Row(
                "rdma-differs",
                "Some hosts have RDMA and others do not, or they have different kinds: NCCL hangs or fails when "
                "it starts.",
                by_hand="`ibstat`, `cat /sys/class/infiniband/*/ports/*/link_layer` on each host",
                fix="Use the same network on all hosts (`NCCL_IB_HCA`), or set `NCCL_IB_DISABLE=1` on all.",
                source="docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
                symptom="a hang in NCCL's init, or `NET/Socket` where peers say `NET/IB`",
                explains="rdma-gid",
            ),
            Row(
                "rdma-gid",
                (
                    "`ibv_modify_qp failed`, `wc error 12`: a RoCE port has no IP address, or "
                    "`NCCL_IB_GID_INDEX` selects no address on this host, or another kind than on its peers."
                ),
                by_hand="`show_gids`; `cat /sys/class/infiniband/*/ports/1/gid_attrs/types/3`",
                fix=(
                    "Give the interface an address; unset `NCCL_IB_GID_INDEX` (NCCL 2.21 and later choose it "
                    "themselves)."
                ),
                source="docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-gid-index",
                command="on {host}: ip addr (give its interface an address); unset NCCL_IB_GID_INDEX; show_gids",
                symptom="`ibv_modify_qp failed`, `wc error 12`",
            ),
            Row(
                "rdma-library",
                (
                    "`NET/Socket` in `NCCL_DEBUG=INFO` although the host has InfiniBand: the image has no "
                    "`libibverbs.so.1`, or no provider for the cards. NCCL then silently uses sockets, which "
                    "are many times slower."
                ),
                by_hand="in the container: `ldconfig -p | grep ibverbs`, `ls /etc/libibverbs.d`",
                fix=(
                    "Use an image with the packages `libibverbs1` and `ibverbs-providers` "
                    "([my own image](my-own-image.md#infiniband)); `make image TARGET=gpu` has them."
                ),
                source="NVIDIA/nccl, src/misc/ibvwrap.cc (it loads libibverbs.so.1 when it starts)",
                command="an image with libibverbs1 and ibverbs-providers: muster docs my-own-image",
                symptom="`NET/Socket` in `NCCL_DEBUG=INFO`",
            ),
            Row(
                "rdma-slow",
                "One host has fewer or slower active ports than the others, and all ranks wait for it.",
                by_hand="`cat /sys/class/infiniband/*/ports/*/rate`",
                fix="Check the cable, the transceiver and the port of the switch.",
                source="docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
                command="on {host}: ibstat (state, rate); then check the cable and the switch port",
                symptom="the slowest sets the pace",
            ),
        ),
        intro=(
            "Preflight checks these if the run uses NCCL (`--collectives nccl`) and does not turn RDMA off "
            "(`NCCL_IB_DISABLE=1`)."
        ),
        group="interfaces",
    ),
)
