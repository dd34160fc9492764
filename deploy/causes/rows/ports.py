"""Causes: ports and leftovers. Data."""

from ..row import LAB, Row, Section

SECTIONS = (
    Section(
        "Ports and leftovers",
        (
            Row(
                "port-busy",
                (
                    "All nodes are silent: with c10d they become clients of whatever program listens on the "
                    "port. If preflight finds another preflight's probe there, it says so and waits for half a "
                    "minute. With a "
                    "static rendezvous, one node prints `EADDRINUSE`."
                ),
                by_hand="`sudo ss -ltnp 'sport = :29500'`",
                fix="End that process, or use another port.",
                source="pytorch/pytorch #85604",
                what="another program that uses the port",
                others=("a security module",),
                explains="wrong-machine",
                symptom=(
                    "all nodes hang silently, as clients of that process; with a static rendezvous, one node prints "
                    "EADDRINUSE"
                ),
            ),
            Row(
                "port-forbidden",
                (
                    "`Permission denied` on the first node: the kernel lets users listen only on ports from "
                    "some number up, and the rendezvous port is lower; otherwise, a seccomp profile or a "
                    "security module forbids it (preflight then says that it is not sure)."
                ),
                by_hand="`sysctl net.ipv4.ip_unprivileged_port_start`",
                fix="`sudo sysctl -w net.ipv4.ip_unprivileged_port_start=1024`, or choose a higher port: `--port`.",
                source="ip-sysctl of the kernel",
                command="on {host}: sudo sysctl -w net.ipv4.ip_unprivileged_port_start=1024",
                symptom="`Permission denied` on the first node; the others wait until the timeout",
                others=(
                    "a seccomp profile",
                    "AppArmor or SELinux",
                ),
            ),
            Row(
                "between-ports",
                (
                    "With `--min-nodes`, the nodes use two additional ports, from 29600 up. A node that the "
                    "others cannot reach on them counts as lost."
                ),
                by_hand="`nc -vz gpu-b 29600` from each other host: `refused` is fine, no answer is not",
                fix="Between the hosts, allow the two ports that the message names (firewall, security group).",
                symptom="a node that the others cannot reach on these ports counts as lost",
            ),
            Row(
                "leftovers",
                "An earlier run still holds ports or GPUs.",
                by_hand="`pgrep -af torchrun`; `muster status --hosts ...`",
                fix="`muster down --hosts ...`, or end the process.",
                symptom="busy ports or GPUs",
            ),
            Row(
                "few-ports",
                "`Cannot assign requested address`, or a hang: the range for local ports is too narrow.",
                by_hand="`sysctl net.ipv4.ip_local_port_range`",
                fix="Set a range of at least 200 ports, or more if there are many ranks.",
                source=LAB,
                symptom="`Address already in use` or `Cannot assign requested address`, or a hang",
                explains="data-ports-rejected host-unreachable local-ports-used no-route",
                rehearsal_decides=True,
            ),
            Row(
                "local-ports-used",
                (
                    "`Cannot assign requested address`: the range for local ports is wide enough, but other "
                    "connections on the host use all of it; or packets would leave with an address that the "
                    "host does not have. Often a program opens connections and never closes them."
                ),
                by_hand="`ss -tan | awk '{print $1}' | sort | uniq -c`; `ss -tanp` as root shows the programs",
                fix="End that program, or widen `net.ipv4.ip_local_port_range`.",
                source=LAB,
                symptom="`Cannot assign requested address`, or a hang",
                others=("a source address that the host does not have",),
                explains="few-ports",
                inferred=True,
            ),
        ),
        group="ports",
    ),
)
