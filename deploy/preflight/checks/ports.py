"""The rendezvous port and the other ports of a run, and processes that earlier runs left. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...causes.finding import FAULT, UNKNOWN, WARNING, Finding, find, unsure
from ...core.text import in_seconds, listed
from ...job.option_words import command_of
from ...job.options import FLAG
from ..answers import Answers, ends_of
from ..request import Facts
from ..targets import NO_PORT

OLD_S = 5.0
FEWEST, FEW, FEWEST_ELSEWHERE = 32, 128, 3
# How the probe marks the command of a Muster run (probe/facts.py, leftovers).
_RUN = re.compile(r"MUSTER_RUN_ID=([A-Za-z0-9][\w-]{0,79}) ", re.ASCII)
WIDEN = 'sudo sysctl -w net.ipv4.ip_local_port_range="32768 60999"'


def check(answers: Answers) -> Iterator[Finding]:
    """Check the rendezvous port, which must be free on the rendezvous host only, then the other ports and processes."""
    if not answers.hosts_with_facts:
        return
    host, port = answers.rendezvous_host, answers.request.port
    failed = answers.listened(host, "failed").get(str(port))
    from_port = answers.facts[host]["resources"].get("ports_from", 0)
    if failed and failed["error"] == "forbidden" and port < from_port:
        yield find(
            "port-forbidden",
            host,
            f"users may listen only on ports from {from_port} up, but the nodes meet on port {port}",
            evidence=(
                f"bind to {port} on {host}: permission denied; net.ipv4.ip_unprivileged_port_start = {from_port}",
            ),
        )
    elif failed and failed["error"] != "in-use":
        yield _closed(host, port, failed["error"])
    elif failed and failed.get("probe"):
        yield find(
            "port-busy",
            host,
            f"another muster preflight uses port {port}, and did not end",
            f"run muster preflight once the other one has ended; or use another port: {FLAG.port} {port + 1}",
            UNKNOWN,
            evidence=(
                f"the program on port {port} of {host} answers like a preflight probe: "
                f"{failed['holder'] or 'nothing shows whose it is'}",
            ),
            symptom="nothing: the port may be free when a run starts",
        )
    elif failed:
        seen = port in answers.facts[host].get("listening", (port,))
        unseen = "a process that only root can see" if seen else "a socket that is bound to it and does not listen"
        yield find(
            "port-busy",
            host,
            f"port {port} is in use, by {failed['holder'] or unseen}",
            _free(host, port, failed["holder"]),
            evidence=(f"bind to {port} on {host}: in use",),
        )
    yield from _between(answers)
    yield from _range(answers)
    yield from _used_up(answers)
    yield from _of_other_runs(answers)


def _closed(host: str, port: int, error: str) -> Finding:
    """Return the finding for a port on which the probe cannot listen, although it is not in use."""
    cause = "port-forbidden" if error == "forbidden" else "port-busy"
    fix = f"on {host}: sysctl net.ipv4.ip_unprivileged_port_start; docker info shows its security options"
    text, symptom = f"the probe cannot listen on port {port}: {error}", "the first node ends as soon as it starts"
    return unsure(find(cause, host, text, fix, symptom=symptom))


def _of_other_runs(answers: Answers) -> Iterator[Finding]:
    """Yield a warning for each host with processes of runs that began before this preflight."""
    old = {host: [row for row in facts.get("leftovers", ()) if row[1] > OLD_S] for host, facts in answers.facts.items()}
    for name, rows in old.items():
        if not rows:
            continue
        pid, age, command = rows[0]
        if own := _RUN.match(command):
            hosts = [host for host, others in old.items() if any(row[2].startswith(own[0]) for row in others)]
            run, end = f"Muster's run {own[1]}", command_of("stop", hosts=",".join(hosts), run=own[1])
        else:
            run, end = "another distributed run", f"on {name}: kill {pid}"
        shown = f"{command[own.end() if own else 0 :][:60]} (pid {pid}, {in_seconds(age)})"
        many = f"{len(rows)} processes" if len(rows) > 1 else "a process"
        yield find(
            "leftovers",
            name,
            f"there {'are' if len(rows) > 1 else 'is'} {many} of {run}: {shown}",
            f"{end}   (if nobody needs it)",
            WARNING,
        )


def _between(answers: Answers) -> Iterator[Finding]:
    """Check the ports of --min-nodes: with it, every node must reach every other one on these ports too."""
    ports = ", ".join(map(str, answers.request.ports))
    for host in answers.facts:
        failed = answers.listened(host, "failed")
        busy = [port for port in answers.request.ports if str(port) in failed]
        for port in busy:
            if (error := failed[str(port)]["error"]) != "in-use":
                yield _closed(host, port, error)
                continue
            yield find(
                "port-busy",
                host,
                f"port {port} of {FLAG.min_nodes} is in use",
                f"on {host}: sudo ss -ltnp 'sport = :{port}' shows who uses it; end that process, or deploy again",
                symptom="a node that the others cannot reach on these ports counts as lost",
            )
        links = [
            link
            for peer in answers.facts
            for link in answers.between(peer, host, "between")
            if not link.ok and link.port not in busy
            # If nothing passes between two hosts, other checks report why.
            if any(data.ok for data in answers.between(*link.ends, "data"))
        ]
        if links:
            cells = ends_of(links)
            sources = listed(source for source, _ in cells)
            yield find(
                "between-ports",
                host,
                f"cannot be reached on TCP {links[0].port} of {FLAG.min_nodes} from {sources}",
                f"on {host}'s firewall and in its security group, allow TCP {ports} from {sources}",
                evidence=[link.describe() for link in links[:3]],
                cells=cells,
            )


def _free(host: str, port: int, who: str) -> str:
    """Return the fix for a busy port: kill the process that has it, or find that process if it is not known."""
    other = f"use another port: {FLAG.port} {port + 1}"
    pid = re.search(r"\(pid (\d+)\)$", who)
    if not pid:
        return f"on {host}: sudo ss -ltnp 'sport = :{port}' shows who uses it; end that process, or {other}"
    return f"on {host}: sudo kill {pid[1]}   (if nobody needs it); or {other}"


def _range(answers: Answers) -> Iterator[Finding]:
    """Check the range of local ports: every rank uses several of them for each of its peers."""
    ranks, free = answers.request.processes, {host: _free_ports(facts) for host, facts in answers.facts.items()}
    for host, count in free.items():
        low, high = answers.facts[host]["port_range"]
        if count < FEW * ranks:
            # Measured: with one rank per host, three ports are enough for a host without the rendezvous.
            needed = (
                host == answers.rendezvous_host
                or ranks > 1
                or free[answers.rendezvous_host] < FEWEST
                or count < FEWEST_ELSEWHERE
            )
            # With two ports, some runs trained and some did not, so a rehearsal must decide.
            grave = FAULT if count < 2 else UNKNOWN
            level = grave if count < FEWEST * ranks and needed else WARNING
            text = f"only {count} ports ({low}-{high}) for all connections"
            if taken := high - low + 1 - count:
                text += f": {taken} others are reserved, or a program listens on them"
            reserved = " net.ipv4.ip_local_reserved_ports=" if answers.facts[host].get("reserved") else ""
            yield find("few-ports", host, text, f"on {host}: {WIDEN}{reserved}", level)


def _free_ports(facts: Facts) -> int:
    """Return how many ports of the range are not reserved and not listened on: the kernel assigns only these."""
    low, high = facts["port_range"]
    taken = {port for port in facts.get("listening", ()) if low <= port <= high}
    for first, last in facts.get("reserved", ()):
        taken |= set(range(max(low, first), min(high, last) + 1))
    return int(high - low + 1 - len(taken))


def _used_up(answers: Answers) -> Iterator[Finding]:
    """Report hosts whose kernel had no local port even for a single call: other connections hold all of them."""
    for host, facts in answers.facts.items():
        links = [link for peer in answers.facts for link in answers.between(host, peer) if link.outcome == NO_PORT]
        if not links:
            continue
        low, high = facts["port_range"]
        peers = listed(target for _, target in ends_of(links))
        yield find(
            "local-ports-used",
            (host,),
            f"{host} has no local port left ({low}-{high}) to connect to {peers}: other connections use them all",
            f"on {host}: ss -tan | sort | uniq -c | sort -rn | head; end that program, or widen the range: {WIDEN}",
            evidence=list(dict.fromkeys(link.describe() for link in links))[:3],
            cells=ends_of(link for link in links if link.is_outward),
        )
