"""Causes: links, firewalls and packet sizes. Data."""

from ..end_causes import Cause
from ..row import AIMLESS, HALVED, LAB, LOST, REFUSED, Row, Section

SECTIONS = (
    Section(
        "Links and firewalls",
        (
            Row(
                "rendezvous-dropped",
                "The first node waits silently; the others time out after 60 s: `The client socket has timed out`.",
                by_hand="`nc -vz HOST 29500`, while a program listens on 29500 there",
                fix="Open the port in ufw, firewalld or the cloud's security group.",
                source=LAB,
                others=(
                    "a firewall on either host or between them",
                    "a security group",
                    "a return path whose packets rp_filter drops",
                    "a limit on new connections",
                ),
                fails=LOST,
                inferred=True,
                gets_no_answer=True,
                ends=Cause.CUT_OFF,
                symptom="both nodes hang silently, or `The client socket has timed out after 60000ms`",
            ),
            Row(
                "rendezvous-rejected",
                (
                    "The first node waits silently; the others time out after 60 s (`The client socket has timed "
                    "out`), because torch retries refused connections."
                ),
                by_hand="`nc -vz HOST 29500` while a program listens there (otherwise `refused` is normal)",
                fix="Open the port.",
                source=LAB,
                others=(
                    "a firewall on either host or between them",
                    "a security group",
                    "a rule that redirects the port elsewhere (DNAT)",
                ),
                fails=REFUSED,
                inferred=True,
                ends=Cause.CUT_OFF,
                symptom="both nodes hang silently, or `The client socket has timed out after 60000ms`",
            ),
            Row(
                "data-ports-dropped",
                (
                    "Port 29500 is open, but all nodes hang silently: torch's second store, gloo and NCCL listen "
                    "on random ports."
                ),
                by_hand="`nc -l 50001` there, `nc -vz HOST 50001` here",
                fix=(
                    "Open the range that `sysctl net.ipv4.ip_local_port_range` shows, or narrow it first (`50000 "
                    "50200`)."
                ),
                source="NVIDIA/nccl, networking troubleshooting",
                others=(
                    "a firewall on either host or between them",
                    "a security group",
                    "a return path whose packets rp_filter drops",
                    "a limit on new connections",
                ),
                fails=LOST,
                inferred=True,
                gets_no_answer=True,
                ends=Cause.CUT_OFF,
                symptom="all nodes hang silently after rendezvous, until the timeout (30 min)",
            ),
            Row(
                "data-ports-rejected",
                "`connectFullMesh failed ... Connection refused, remote=[...]` on one node, a hang on the others.",
                by_hand="as above",
                fix="as above",
                source=LAB,
                others=(
                    "a firewall on either host or between them",
                    "a security group",
                    "a rule that redirects the ports elsewhere (DNAT)",
                ),
                fails=REFUSED,
                inferred=True,
                ends=Cause.CUT_OFF,
                symptom="`connectFullMesh failed ... Connection refused` on one node, a hang on the others",
            ),
            Row(
                "all-ports-dropped",
                "No TCP connection passes in one direction, although the host is up.",
                by_hand="`nc -vz`, `sudo iptables -S`, `sudo nft list ruleset`",
                fix="Allow connections from the cluster's network.",
                source=LAB,
                others=(
                    "a firewall on either host or between them",
                    "a security group",
                    "a return path whose packets rp_filter drops",
                    "a limit on new connections",
                ),
                fails=LOST | AIMLESS | {"unreachable"},
                inferred=True,
                gets_no_answer=True,
                symptom="both nodes hang silently, or `The client socket has timed out after 60000ms`",
            ),
            Row(
                "all-ports-rejected",
                "The same with `Connection refused`.",
                by_hand="as above",
                fix="as above",
                source=LAB,
                others=(
                    "a firewall on either host or between them",
                    "a security group",
                    "a rule that redirects the ports elsewhere (DNAT)",
                    "a routing rule (prohibit)",
                    "a seccomp profile",
                ),
                fails=REFUSED | AIMLESS | LOST,
                inferred=True,
                symptom="both nodes hang silently, or `The client socket has timed out after 60000ms`",
            ),
            Row(
                "host-unreachable",
                (
                    "No packet gets to or from a host. Usual reasons: the cable, the switch, the VLAN, the "
                    "security group, or a firewall that drops everything."
                ),
                by_hand="`ping`, `ip neigh`, `sudo iptables -S`",
                fix="Repair the network; compare the host's security group with those of its peers.",
                source=LAB,
                others=(
                    "a firewall on either host or between them",
                    "a security group",
                    "a wrong route or netmask",
                    "the switch, or another VLAN",
                ),
                fails=LOST | AIMLESS | REFUSED | {"no-arp", "wrong-card"},
                inferred=True,
                gets_no_answer=True,
                ends=Cause.CUT_OFF,
                symptom="both nodes hang silently, or `The client socket has timed out after 60000ms`",
            ),
            Row(
                "no-route",
                "`Network is unreachable`.",
                by_hand="`ip route get ADDRESS`",
                fix="Add the route, or set the interface that has one.",
                source=LAB,
                others=(
                    "a routing rule (ip rule)",
                    "the host's own firewall, which rejects what it sends",
                ),
                fails=LOST | AIMLESS | {"unreachable", "no-arp", "wrong-card"},
                inferred=True,
                settled_by="way",
                ends=Cause.CUT_OFF,
                symptom="both nodes hang silently, or `The client socket has timed out after 60000ms`",
            ),
            Row(
                "arp-unanswered",
                (
                    "No host answers ARP for a peer's address, or for the gateway on the way to it: the address is "
                    "on another network or VLAN, the card is down or its cable unplugged, or something filters "
                    "ARP (`arp_ignore`). No packet of the connection was ever sent."
                ),
                by_hand="`ip route get ADDRESS`, then `ip neigh show`: `INCOMPLETE` or `FAILED`",
                fix="Repair the cable, the VLAN of the switch port, or the route.",
                source=LAB,
                others=(
                    "another VLAN",
                    "an ARP filter (arp_ignore, arptables)",
                    "another machine with the same address",
                ),
                fails=LOST | AIMLESS | {"no-arp", "wrong-card", "unreachable"},
                inferred=True,
                settled_by="neighbours",
                gets_no_answer=True,
                symptom="both nodes hang silently, or `The client socket has timed out after 60000ms`",
            ),
            Row(
                "arp-wrong",
                (
                    "A host's neighbour table has a wrong hardware address for its peer: somebody entered it, "
                    "or another machine answered. The host's packets do not arrive."
                ),
                by_hand="`ip neigh show ADDRESS` on the host, `ip link` on the peer",
                fix="`sudo ip neigh del ADDRESS dev DEV`; find the other machine that answers (`arping ADDRESS`).",
                source=LAB,
                others=(
                    "proxy ARP",
                    "another machine with the same address",
                ),
                fails=LOST | AIMLESS | {"no-arp", "wrong-card", "unreachable"},
                inferred=True,
                settled_by="neighbours",
                symptom="both nodes hang silently, or `The client socket has timed out after 60000ms`",
            ),
            Row(
                "ipv6-blackhole",
                (
                    "A name has A and AAAA records, and IPv6 packets get lost. torch tries IPv6 first and does not "
                    "fall back."
                ),
                by_hand="compare `nc -6 -vz NAME 29500` and `nc -4 -vz NAME 29500`",
                fix="Give the endpoint as an IPv4 address, or let IPv6 packets through.",
                source=LAB,
                explains="all-ports-dropped data-ports-dropped one-way rendezvous-dropped",
                symptom="both nodes hang silently, or `The client socket has timed out after 60000ms`",
            ),
            Row(
                "one-way",
                (
                    "New connections pass in one direction only. gloo opens them from the larger address to the "
                    "smaller one, so it may work; NCCL's rings do not."
                ),
                by_hand="`nc -vz` in both directions",
                fix="Open both directions.",
                source=LAB,
                gets_no_answer=True,
                symptom="none with gloo, which opens connections from the larger address to the smaller one",
            ),
            Row(
                "wrong-machine",
                "Something other than the peer answers at its address: a proxy, a redirect, or a second host "
                "with that address.",
                by_hand="`ip neigh show ADDRESS`; `sudo iptables -t nat -S`",
                fix="Find what answers, and stop it.",
                source=LAB,
                others=(
                    "another program at that address",
                    "a middlebox that passes only the handshake",
                ),
                fails=frozenset({"stranger", "other-run", "silent", "ok", "reset"}),
                inferred=True,
                settled_by="answerer",
                symptom="both nodes hang silently, or `The client socket has timed out after 60000ms`",
            ),
            Row(
                "link-loss",
                (
                    "Everything works, but many times slower, with a timeout now and then. If open connections "
                    "lose nothing and some new connections are never answered, one of several paths between the "
                    "hosts is dead (such as one link of a bond), or something limits connections: the ports of "
                    "a connection decide which path it takes."
                ),
                by_hand="`ip -s link`, `ethtool -S DEV`, `nstat | grep Retrans`; `cat /proc/net/bonding/*`",
                fix="Check the cable, the transceiver, the switch port and the duplex mode.",
                source=LAB,
                symptom="everything works, many times slower; now and then a timeout",
                others=(
                    "a limit on packets or on new connections",
                    "one dead path of several",
                    "a bad cable",
                ),
                explains="link-slow mtu-blackhole",
                fails=LOST | HALVED,
                inferred=True,
                from_many_packets=True,
            ),
            Row(
                "link-delay",
                "An answer over the network takes too long: 60 ms is a warning, 250 ms a fault. Every step "
                "waits for several such answers.",
                by_hand="`ping`, `tracepath`",
                fix="Use the direct route or network.",
                source=LAB,
                command="on {host}: is this the route you want? ip route get <a peer>; tracepath <a peer>",
                others=(
                    "a long way",
                    "a full queue",
                    "a busy host",
                ),
                explains="connection-cut link-loss link-slow mtu-blackhole",
                fails=LOST | HALVED,
                inferred=True,
                settled_by="delay",
                from_many_packets=True,
            ),
            Row(
                "link-slow",
                "A link is far slower than training needs, or so slow to answer that each reply takes tenths of "
                "a second.",
                by_hand="`ethtool DEV | grep Speed`, `muster preflight --bandwidth`; `tracepath HOST`",
                fix=(
                    "Use the right interface. Check the speed of the switch port. Remove rate limits, tunnels and "
                    "routes through another city."
                ),
                source=LAB,
                command="on {host}: ip -s link; ethtool and its interface (speed, duplex); then the switch port",
                symptom="each step takes that long, or a rank gives up waiting",
                others=(
                    "a limit of rate",
                    "small TCP windows (tcp_rmem, tcp_wmem)",
                    "a busy host",
                    "lost packets",
                ),
                explains="link-loss mtu-blackhole",
                fails=LOST & {"late"} | HALVED,
                inferred=True,
                settled_by="rate",
                from_many_packets=True,
            ),
            Row(
                "connection-cut",
                (
                    "Rendezvous, init and small tensors pass, but a large all_reduce hangs. Something between the "
                    "hosts counts bytes, or loses the large segments that a network card builds. If each "
                    "connection opens and nothing arrives after that, something drops the packets that follow "
                    "the handshake: an inspecting firewall, or a queue (NFQUEUE) whose program has ended."
                ),
                by_hand="`head -c 4M /dev/zero | nc HOST 40000` with `nc -l 40000 | wc -c` there",
                fix=(
                    "Look for quota and connbytes in `sudo iptables -vnL`. Try `ethtool -K DEV tso off gso off gro "
                    "off`. Check the filter between the hosts."
                ),
                source="iptables-extensions(8); measured in the laboratory (docs/evidence/preflight-score.md)",
                symptom="the rendezvous connects, and hangs until its timeout",
                others=(
                    "a limit on bytes or on time",
                    "an inspecting firewall",
                    "a rule that drops packets by length or byte count",
                    "a network card's offloads (tso, gro)",
                    "a middlebox that changes TCP",
                ),
                fails=HALVED,
                inferred=True,
                ends=Cause.CUT_OFF,
            ),
        ),
        group="links",
    ),
    Section(
        "Packet sizes",
        (
            Row(
                "mtu-blackhole",
                "Rendezvous and init pass, then the first large all_reduce hangs until its timeout (30 min).",
                by_hand="`ping -M do -s 1472 HOST` (8972 for jumbo frames)",
                fix="Set one MTU on hosts and switches, or run `ip link set DEV mtu 1400`; let ICMP through.",
                source="NVIDIA/nccl #1524, #1957",
                others=(
                    "a tunnel or a switch with a smaller MTU",
                    "a rule that drops packets by length or byte count",
                    "a network card's offloads (tso, gro)",
                    "a middlebox that changes TCP",
                ),
                explains="connection-cut link-loss link-slow",
                fails=HALVED - {"reset"},
                inferred=True,
                settled_by="sizes",
            ),
            Row(
                "mtu-differs",
                "Harmless as long as large payloads pass.",
                by_hand="`ip link`",
                fix="Set one MTU on all hosts.",
                command="set one MTU on all hosts",
                symptom="none, as long as large payloads pass",
            ),
        ),
        group="mtu",
    ),
)
