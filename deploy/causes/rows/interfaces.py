"""Causes: interfaces and addresses. Data."""

from ..end_causes import Cause
from ..row import LAB, Row, Section

SECTIONS = (
    Section(
        "Interfaces and addresses",
        (
            Row(
                "interface-missing",
                (
                    "`Unable to find address for: eth9`, or NCCL's `no socket interface found`. If a container "
                    "cannot list any network card, something forbids netlink sockets, usually the engine's "
                    "seccomp profile."
                ),
                by_hand="`ip addr`, `env | grep IFNAME`, in the container",
                fix="Set the right name for each host (`interface` in cluster.toml).",
                source=LAB,
                what="has no interface {name}",
                symptom="`Unable to find address for: {name}`, or NCCL's `no socket interface found`",
            ),
            Row(
                "interface-no-address",
                (
                    "The same message, for an interface without an address. As a warning: the address that the "
                    "run uses expires in less than two minutes (`valid_lft`), unless the host's DHCP client "
                    "renews its lease; if it expires, all nodes hang."
                ),
                by_hand="`ip addr show DEV`: does `valid_lft` grow again?",
                fix="Give the interface an address, or choose another interface. If a lease expires: start the "
                "DHCP client again.",
                source=LAB,
                explains="all-ports-dropped arp-unanswered arp-wrong host-unreachable no-route",
                what="has no address on {name}",
                symptom="`Unable to find address for: {name}`",
            ),
            Row(
                "interface-down",
                "`No route to host`, or a hang.",
                by_hand="`ip link`. Loopback (`lo`) must be up too: a host connects to itself over it.",
                fix="`sudo ip link set DEV up`",
                source=LAB,
                explains="arp-unanswered arp-wrong host-unreachable no-route",
                symptom="`No route to host`, or a hang",
                what="has the interface {name} down",
            ),
            Row(
                "interface-loopback",
                "`GLOO_SOCKET_IFNAME=lo` (for example copied from a laptop): the peers print `remote=[127.0.0.1]`.",
                by_hand="`env | grep IFNAME`",
                fix="Set the interface that leads to the peers.",
                source=LAB,
                symptom="`connectFullMesh failed ... remote=[127.0.0.1]` on the peers",
                what="would use loopback ({name})",
            ),
            Row(
                "interface-slow",
                "Everything works, but ten times slower than over the hosts' other, faster network.",
                by_hand="`cat /sys/class/net/*/speed`",
                fix="Set `NCCL_SOCKET_IFNAME==FAST`, the name of the fast interface.",
                source=LAB,
                symptom="slow steps",
            ),
            Row(
                "link-local",
                "The interface has only an fe80:: (link-local) address, which peers cannot use without a scope.",
                by_hand="`ip -6 addr`",
                fix="Use an interface with a global address, or set `NCCL_SOCKET_FAMILY=AF_INET`.",
                source="NVIDIA/nccl #529",
                group="names",
                ends=Cause.CUT_OFF,
                symptom="`connectFullMesh failed ... remote=[127.0.1.1]` on the *other* hosts, a hang on this one",
                what="it would use the link-local address {address}, which its peers cannot use",
            ),
            Row(
                "family-mixed",
                "`ss1.ss_family == ss2.ss_family. 10 vs 2` on all nodes.",
                by_hand="`getent ahosts $(hostname)` on each host",
                fix="Use one address family on all hosts, with `GLOO_SOCKET_IFNAME` or /etc/hosts.",
                source=LAB,
                symptom="`ss1.ss_family == ss2.ss_family. 10 vs 2` on all nodes",
                ends=Cause.CUT_OFF,
            ),
            Row(
                "other-network",
                (
                    "The chosen address is on a network that the peers cannot reach (VPN, storage, bridge), "
                    "although another network works."
                ),
                by_hand="`ip route get ADDRESS` from a peer",
                fix="Set `GLOO_SOCKET_IFNAME` and `NCCL_SOCKET_IFNAME` to the interface of the network that works.",
                source=LAB,
                symptom="`connect: Network is unreachable`, `No route to host`, or a hang",
                group="links",
                ends=Cause.CUT_OFF,
            ),
            Row(
                "container-bridge",
                (
                    "NCCL only skips docker*, lo* and virbr*. It may choose br-xxxx, cni or veth: "
                    "`NET/Socket: Connect to 172.18.0.1<...> failed`."
                ),
                by_hand="`NCCL_DEBUG=INFO`, `ip addr`",
                fix="Set `NCCL_SOCKET_IFNAME==eth0` (with `=`: exactly that name).",
                source="NVIDIA/nccl #286, #941",
                ends=Cause.CUT_OFF,
                symptom="`NET/Socket: Connect to ... failed`, or a hang",
                what="would use {name}, a container engine's bridge",
            ),
            Row(
                "bridge-network",
                "The container has its own network: `remote=[172.17.0.2]`, a timeout of 60 s, a hang.",
                by_hand="compare `ip addr` in the container and on the host",
                fix=(
                    "`docker run --network host`. If the engine itself has its own network, start it in the "
                    "host's network: `sudo systemctl restart docker`; do not use a rootless engine."
                ),
                source="NVIDIA/nccl #331; pytorch/pytorch #12527",
                command="docker run --network host (bridge networks do not forward the random ports)",
                explains=(
                    "all-ports-dropped arp-unanswered arp-wrong endpoint-nobody host-unreachable no-route other-network"
                ),
                symptom="`connectFullMesh failed ... remote=[172.17.0.2]`, or a 60 s timeout and a hang",
            ),
            Row(
                "address-overlap",
                (
                    "A route sends traffic for a peer into a container network (`docker0`, `br-...`, `virbr0`) "
                    "or into a tunnel, because that network's range includes the peer's address."
                ),
                by_hand="`ip route get ADDRESS` on that host: it names the wrong interface; `docker network ls`",
                fix=(
                    "Give the container network another range (`default-address-pools` in "
                    "`/etc/docker/daemon.json`), or remove the tunnel's route."
                ),
                source=LAB,
                symptom="both nodes hang silently, or `The client socket has timed out after 60000ms`",
                explains=(
                    "all-ports-dropped all-ports-rejected arp-unanswered bridge-network container-bridge "
                    "data-ports-dropped data-ports-rejected duplicate-address endpoint-nobody host-unreachable "
                    "interface-down interface-loopback interface-no-address no-route other-network "
                    "rendezvous-dropped rendezvous-rejected wrong-machine"
                ),
            ),
            Row(
                "machine-twice",
                (
                    "Two names in `--hosts` are the same machine: the same boot id, network and address. Two "
                    "ranks would wait for the same port."
                ),
                by_hand="`cat /proc/sys/kernel/random/boot_id` under both names",
                fix="Name each machine once.",
                source=LAB,
                command="name each machine once in --hosts",
                symptom="two ranks wait for the same port and GPUs",
                group="hosts",
                explains="duplicate-address endpoint-twice port-busy same-hostname wrong-machine",
            ),
            Row(
                "duplicate-address",
                (
                    "Two hosts have the same address, perhaps on one of them only on loopback (as behind some "
                    "load balancers). Whichever answers first gets the connection."
                ),
                by_hand="`ip addr` on both; `ip neigh`, `arping -D`",
                fix="Give each host its own address.",
                source=LAB,
                explains=(
                    "all-ports-dropped arp-unanswered arp-wrong endpoint-twice host-unreachable interface-loopback "
                    "wrong-machine"
                ),
                symptom="`connectFullMesh failed ... remote=[172.17.0.2]`, or a 60 s timeout and a hang",
                command="give each host its own address (see: ip addr)",
            ),
            Row(
                "duplicate-mac",
                (
                    "Two hosts have the same hardware address, as cloned virtual machines do. Connections between "
                    "healthy hosts hang, or come and go."
                ),
                by_hand="`ip link show DEV` on each host; `ip neigh` on a third one",
                fix="Run `sudo ip link set dev DEV address ...`; clone machines with new addresses.",
                source=LAB,
                symptom="connections between healthy hosts that hang, or come and go",
                explains=(
                    "all-ports-dropped arp-unanswered arp-wrong host-unreachable link-loss rendezvous-dropped "
                    "wrong-machine"
                ),
            ),
            Row(
                "loopback-silent",
                (
                    "A host cannot connect to itself: its loopback has lost its address, or a firewall filters "
                    "it. The rendezvous host hangs first. If only the name `localhost` does not work, that is a "
                    "warning: torchrun does not need it, but a script may."
                ),
                by_hand=(
                    "`ip addr show lo`; `getent ahosts localhost`; `nc -vz 127.0.0.1 22`; `sudo iptables -S INPUT`"
                ),
                fix="`sudo ip addr add 127.0.0.1/8 dev lo`; `sudo iptables -I INPUT -i lo -j ACCEPT`.",
                source=LAB,
                command="on {host}: echo '127.0.0.1 localhost' | sudo tee -a /etc/hosts",
                symptom="the rendezvous host hangs, or prints `The client socket has timed out`",
                explains="rendezvous-dropped rendezvous-rejected",
            ),
        ),
        group="interfaces",
    ),
)
