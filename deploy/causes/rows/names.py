"""Causes: names and the endpoint. Data."""

from ..end_causes import Cause
from ..row import LAB, Row, Section

SECTIONS = (
    Section(
        "Names",
        (
            Row(
                "name-loopback",
                (
                    "Debian and Ubuntu write `127.0.1.1 HOST` into /etc/hosts. gloo then listens on loopback: the "
                    "*other* hosts say `connectFullMesh failed ... remote=[127.0.1.1]`. With an IP endpoint and "
                    "c10d, no node hosts the rendezvous: all nodes print `client socket has timed out`."
                ),
                by_hand="`getent ahosts $(hostname)`",
                fix=(
                    "Give the name the host's real address in /etc/hosts. Or set `GLOO_SOCKET_IFNAME=<if>`, and "
                    "`--rdzv-conf is_host=1` on the first host and `0` elsewhere. `muster deploy` does the latter."
                ),
                source="pytorch/pytorch #79388, #85300",
                explains="endpoint-nobody family-mixed peer-name-wrong",
                ends=Cause.CUT_OFF,
                symptom="`connectFullMesh failed ... remote=[127.0.1.1]` on the *other* hosts, a hang on this one",
                what="its own name {name} resolves to {address}, which no peer can reach",
            ),
            Row(
                "name-unresolvable",
                (
                    "`socket.gaierror: Name or service not known`, or `Unable to resolve hostname to a (local) "
                    "address. Using the loopback address`. If the lookup gets no answer within 2 s, the name "
                    "server is silent: that is a warning, and the likely cause if the rehearsal fails."
                ),
                by_hand="`getent ahosts $(hostname)`",
                fix="`echo 'ADDRESS NAME' | sudo tee -a /etc/hosts`",
                source=LAB,
                explains="endpoint-nobody family-mixed peer-name-unresolvable proof-failed",
                symptom="`socket.gaierror: Name or service not known`",
                what="it cannot resolve its own name {name}",
            ),
            Row(
                "name-foreign",
                (
                    "The host's own name resolves to an address that the host does not have (an outdated "
                    "/etc/hosts, a cloned machine). gloo falls back to loopback."
                ),
                by_hand="compare `getent ahosts $(hostname)` with `ip addr`",
                fix="Correct /etc/hosts or DNS.",
                source=LAB,
                explains="endpoint-nobody family-mixed peer-name-wrong",
                symptom="`connectFullMesh failed ... remote=[127.0.1.1]` on the *other* hosts, a hang on this one",
                what="its own name {name} resolves to an address that it does not have ({address})",
            ),
            Row(
                "peer-name-unresolvable",
                (
                    "Rank 0 announces its full name as MASTER_ADDR, and a peer cannot resolve it. All ranks hang; "
                    "`The IPv6 network addresses of (...) cannot be retrieved` misleads."
                ),
                by_hand="on the peer: `getent ahosts RANK0-NAME`",
                fix="Start with `torchrun --local-addr ADDRESS`, or add the name to /etc/hosts.",
                source="pytorch/pytorch #150532",
                symptom=(
                    "all nodes hang after rendezvous; `The IPv6 network addresses of (...) cannot be retrieved` "
                    "misleads"
                ),
            ),
            Row(
                "peer-name-wrong",
                (
                    "Rank 0 announces its full name as MASTER_ADDR, and on a peer this name resolves to another "
                    "machine, or to the peer itself. All ranks hang."
                ),
                by_hand="on the peer: `getent ahosts RANK0-NAME`",
                fix="Correct /etc/hosts or DNS there.",
                source=LAB,
                symptom=(
                    "all nodes hang after rendezvous; `The IPv6 network addresses of (...) cannot be retrieved` "
                    "misleads"
                ),
            ),
            Row(
                "same-hostname",
                "Cloned machines share one name. The peers of rank 0 look for rank 0 on themselves, and all "
                "nodes hang.",
                by_hand="`hostname` on each host",
                fix="`sudo hostnamectl set-hostname NAME`",
                source="pytorch/pytorch #73656",
                symptom="all nodes hang after rendezvous",
                explains="endpoint-twice peer-name-wrong",
                ends=Cause.CUT_OFF,
            ),
            Row(
                "endpoint-unresolvable",
                "`gaierror`, or a timeout of 60 s on one node.",
                by_hand="`getent ahosts ENDPOINT`",
                fix="Give the endpoint as an IP address.",
                source=LAB,
                symptom="most nodes hang without an error; some print `The client socket has timed out after 60000ms`",
                explains="endpoint-nobody peer-name-unresolvable",
            ),
            Row(
                "endpoint-loopback",
                "The endpoint is `localhost`: each node trains or waits alone.",
                by_hand="`getent ahosts ENDPOINT` on each host",
                fix="Give an address that all nodes can reach.",
                source=LAB,
                symptom="every node trains, or waits, alone",
                explains="endpoint-nobody endpoint-twice",
            ),
            Row(
                "endpoint-nobody",
                (
                    "c10d compares the endpoint with the addresses of each host's own name. No host matches, so "
                    "no node opens the rendezvous: every node times out after 60 s, even the endpoint's own host."
                ),
                by_hand="`getent ahosts $(hostname)` on the endpoint's host",
                fix="Set `--rdzv-conf is_host=1` there and `is_host=0` elsewhere.",
                source="torch 2.13, elastic/rendezvous/utils.py",
                symptom="`The client socket has timed out after 60000ms` on all nodes, even the endpoint's own",
            ),
            Row(
                "endpoint-twice",
                "Several hosts take themselves for the endpoint, and each waits alone.",
                by_hand="`getent ahosts ENDPOINT` on each host",
                fix="Set `is_host=1` on one host and `0` elsewhere.",
                source="pytorch/pytorch #73656",
                command=(
                    "hostnamectl set-hostname: its own name for each host, or --rdzv-conf is_host=1 on one, "
                    "is_host=0 else"
                ),
                symptom="every node waits alone",
            ),
            Row(
                "endpoint-foreign",
                "No host has the endpoint's address.",
                by_hand="`ip addr` on the first host",
                fix="Give an address of the first host. A public address behind NAT needs `is_host=1`.",
                source=LAB,
                explains="no-route rendezvous-dropped rendezvous-rejected wrong-machine",
                ends=Cause.CUT_OFF,
                symptom="`The client socket has timed out after 60000ms` on all nodes, even the endpoint's own",
            ),
        ),
        group="names",
    ),
)
