"""Names: how each host resolves its own name and its peers' names, and whether torch can work with that. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ...causes.finding import FAULT, UNKNOWN, WARNING, Finding, find
from ...causes.table import ROWS
from ...core.text import in_seconds, listed
from .. import prediction, remedies
from ..answers import Answers
from ..probe.facts import RESOLVE_S
from ..request import MUSTER, TORCHRUN

# The most characters between two dots of a name, which is DNS's limit.
MOST_LABEL = 63


def check(answers: Answers) -> Iterator[Finding]:
    """Check the hosts' own names (gloo listens there), the endpoint's name, and how peers resolve rank 0's name."""
    if len(answers.facts) < 2:
        return
    yield from _own(answers)
    # There is no endpoint if the first host has no address that its peers can reach; another check reports that.
    if answers.plan.endpoint and (
        answers.request.style == TORCHRUN or not prediction.is_address(answers.plan.endpoint)
    ):
        yield from _endpoint(answers)
    if answers.request.by_c10d:
        yield from _twins(answers)
        yield from _store(answers)
    yield from _localhost(answers)


def _own(answers: Answers) -> Iterator[Finding]:
    for host, facts in answers.facts.items():
        name, pick = facts["hostname"], answers.picks[host]
        if answers.request.style in (MUSTER, TORCHRUN) and not _is_askable(name):
            yield _not_askable(host, name)
            continue
        problem = pick.problem if pick.problem and ROWS[pick.problem].group == "names" else ""
        if _raises(answers, host):
            problem = "name-unresolvable"
        if problem == "name-foreign" and _has_a_peers(answers, host):
            continue  # the host has a peer's address instead of its own: another check reports that, and explains this
        rows = facts["names"].get(name)
        late = isinstance(rows, dict) and rows.get("error") == "timeout"
        if late and not problem:
            yield _slow(answers, host, name)
        elif late and problem == "name-unresolvable":
            yield find(
                problem,
                host,
                f"its own name {name} did not resolve within {in_seconds(RESOLVE_S, 0)}",
                _own_fix(answers, host, name, problem),
                UNKNOWN,
                symptom="a slow start, or `Name or service not known`",
            )
        elif problem:
            shown = _listed(rows)
            yield find(
                problem,
                host,
                ROWS[problem].what.format(name=name, address=pick.address if problem == "link-local" else shown),
                _own_fix(answers, host, name, problem),
                WARNING if _harmless(answers, host, problem) else FAULT,
                (
                    f"on {host}: getent ahosts {name} -> {shown}",
                    f"so its peers would use {pick.address}: {pick.how}",
                ),
            )


def _raises(answers: Answers, host: str) -> bool:
    """Whether torchrun's rendezvous fails on this host, because it cannot look up the host's own name."""
    return (
        answers.request.by_c10d
        and prediction.considers_itself_endpoint(answers.facts[host], answers.plan.endpoint) is None
    )


def _listed(rows: object) -> str:
    """Return the addresses of a name, as a list in words."""
    return ", ".join(row[0] for row in rows) if isinstance(rows, list) else "nothing"


def _is_askable(name: str) -> bool:
    """Whether Python can look up a host's name: each part between two dots must have 1 to 63 characters."""
    return not name or all(0 < len(label) <= MOST_LABEL for label in name.removesuffix(".").split("."))


def _not_askable(host: str, name: str) -> Finding:
    """Return the finding for such a name: torchrun looks up its host's full name at its start, and Python raises."""
    limits = f"it accepts 1 to {MOST_LABEL} characters between two dots"
    return find(
        "name-unresolvable",
        host,
        f"Python cannot look up the host's own name {name[:80]}: {limits}",
        f"on {host}: sudo hostnamectl set-hostname {host}",
        symptom="`UnicodeError: encoding with 'idna' codec failed` at the start of torchrun",
    )


def _has_a_peers(answers: Answers, host: str) -> bool:
    """Whether this host has an address that another host would use."""
    own = prediction.own_addresses(answers.facts[host])
    return any(peer != host and pick.address in own for peer, pick in answers.picks.items())


def _slow(answers: Answers, host: str, name: str) -> Finding:
    """Return a warning for a slow name server: even if no rank needs a name, torchrun looks up the host's own one."""
    return find(
        "name-unresolvable",
        host,
        f"the lookup of its own name {name} got no answer within {in_seconds(RESOLVE_S, 0)}",
        f"{_own_fix(answers, host, name, 'name-unresolvable')}; on {host}: cat /etc/resolv.conf",
        WARNING,
        symptom="each start waits for this lookup",
    )


def _localhost(answers: Answers) -> Iterator[Finding]:
    """Warn if nothing can listen on the first node's `localhost`. Scripts may need it; torchrun does not."""
    host = answers.rendezvous_host
    rows = answers.facts.get(host, {}).get("names", {}).get("localhost")
    fails = isinstance(rows, dict) and rows.get("error") not in (None, "timeout")
    if fails or (isinstance(rows, list) and rows and not any(row[1] for row in rows)):
        shown = rows["error"] if isinstance(rows, dict) else f"{rows[0][0]}, which it does not have"
        yield find(
            "loopback-silent",
            host,
            f"nothing can listen on localhost, which resolves to {shown}",
            level=WARNING,
            evidence=(f"on {host}: getent ahosts localhost -> {shown}",),
            symptom="a script or a library that asks for localhost fails",
            group="names",
        )


def _harmless(answers: Answers, host: str, problem: str) -> bool:
    """Whether gloo works anyway: the host with the larger address makes the call, so no peer needs that address."""
    if answers.request.backend != "gloo":
        return False
    if problem == "link-local":
        # gloo can connect link-local addresses if the interface has the same index on all hosts.
        numbers = {answers.card(each).get("index", 0) for each in answers.picks}
        return len(numbers) == 1 and all(pick.problem == "link-local" for pick in answers.picks.values())
    return (
        not _raises(answers, host) and len(answers.plan.owners) == 1 and not prediction.is_called(answers.picks, host)
    )


def _own_fix(answers: Answers, host: str, name: str, problem: str) -> str:
    row = next(prediction.reachable(answers.facts[host]), None)
    if row is None:
        return f"on {host}: ip addr; it has no address"
    if problem == "link-local":
        return remedies.use_interface(answers, host, row[0])
    if name.startswith("localhost"):
        return f"on {host}: {_renamed(answers, host)}"
    return f"on {host}: {remedies.set_name_command(name, row[1])}"


def _renamed(answers: Answers, host: str) -> str:
    """Return a command that gives a host the user's name for it, and gives this name the host's address."""
    row = next(prediction.reachable(answers.facts[host]), None)
    known = f" && {remedies.set_name_command(host, row[1])}" if row else ""
    return f"sudo hostnamectl set-hostname {host}{known}"


def _endpoint(answers: Answers) -> Iterator[Finding]:
    """Check how each host resolves the rendezvous endpoint."""
    name, master = answers.plan.endpoint, answers.master
    seen = {host: answers.resolved(host, name) for host in answers.facts}
    blind = tuple(host for host, addresses in seen.items() if addresses is None and name != "localhost")
    if blind:
        answer = answers.facts[blind[0]]["names"].get(name)
        why = answer.get("error", "") if isinstance(answer, dict) else ""
        yield find(
            "endpoint-unresolvable",
            blind,
            f"{listed(blind)} cannot resolve the endpoint's name {name}",
            f"give the endpoint as an IP address: {_option(answers)}",
            evidence=(f"{blind[0]}: {name}: {why}",),
        )
        return
    inward = tuple(
        host
        for host, addresses in seen.items()
        if name == "localhost" or (addresses and all(map(prediction.is_loopback, addresses)) and host != master)
    )
    if inward or prediction.is_loopback(name):
        hosts = inward or answers.hosts_with_facts
        yield find(
            "endpoint-loopback",
            hosts,
            f"on {listed(hosts)} the endpoint {name} is the host itself: each would wait, or train, alone",
            f"give an address of {master} that all hosts can reach: {_option(answers)}",
        )
        return
    if answers.request.by_c10d:
        yield from _owners(answers, name)


def _option(answers: Answers) -> str:
    """Return the option for an endpoint that all hosts can reach."""
    return f"--rdzv-endpoint {prediction.meeting_address(answers.facts)}:{answers.request.port}"


def _owners(answers: Answers, name: str) -> Iterator[Finding]:
    """Check that exactly one host recognizes itself: torch compares the endpoint with the addresses of its own name."""
    owners, master = answers.plan.owners, answers.master
    if len(owners) > 1:
        yield find(
            "endpoint-twice",
            tuple(host for host in owners if host != master),
            f"{listed(owners)} all take themselves for the endpoint {name}: each would host its own rendezvous",
        )
    if owners:
        return
    having = [host for host, facts in answers.facts.items() if name in prediction.own_addresses(facts)]
    first = (*having, master)[0]
    own = answers.facts[first]["hostname"]
    rows = answers.facts[first]["names"].get(own)
    shown = _listed(rows)
    foreign = prediction.is_address(name) and not having
    other = isinstance(rows, list) and all(row[1] and not prediction.is_loopback(row[0]) for row in rows)
    other = other and any((":" in row[0]) == (":" in name) for row in rows)
    cause = "endpoint-foreign" if foreign else "other-network" if other else "endpoint-nobody"
    why = "no host has that address" if foreign else f"{first}'s name {own} is {shown}"
    fix = f"on {first}: --rdzv-conf is_host=1, elsewhere is_host=0; or make {own} resolve to {name}"
    if foreign:
        fix = f"give an address that {master} has: {_option(answers)}"
    elif prediction.is_address(name):
        fix = f"on {first}: {remedies.set_name_command(own, name)}"
    yield find(
        cause,
        (first,),
        f"no host takes itself for the endpoint {name}, so no host would listen there: {why}",
        fix,
        evidence=(f"on {first}: getent ahosts {own} -> {shown}",),
        symptom=ROWS["endpoint-nobody"].symptom,
        group="names",
    )


def _twins(answers: Answers) -> Iterator[Finding]:
    by_name: dict[str, list[str]] = {}
    for host, facts in answers.facts.items():
        by_name.setdefault(facts["hostname"], []).append(host)
    for name, hosts in by_name.items():
        if len(hosts) > 1 and not name.startswith("localhost"):
            yield find(
                "same-hostname",
                tuple(hosts),
                f"{listed(hosts)} have the same name, {name}: the peers of rank 0 would look for it on themselves",
                remedies.on_hosts(hosts[1:], lambda host: _renamed(answers, host)),
            )


def _store(answers: Answers) -> Iterator[Finding]:
    """Check that the peers resolve MASTER_ADDR to rank 0's host: it is that host's full name, by its own look-up."""
    first, name = answers.plan.first, answers.plan.store_name
    own = prediction.own_addresses(answers.facts[first])
    if not name:
        return
    if name.startswith("localhost"):
        fix = _own_fix(answers, first, answers.facts[first]["hostname"], "name-loopback")
        yield find(
            "name-loopback",
            (first,),
            f"{first} calls itself {name} and would be rank 0: its peers would look for rank 0 on themselves",
            fix,
            symptom="all nodes hang after rendezvous",
        )
        return
    resolved = {host: answers.resolved(host, name) for host in answers.facts if host != first}
    blind = tuple(host for host, addresses in resolved.items() if addresses is None)
    wrong = {}
    for host, addresses in resolved.items():
        right = any(link.ok for link in answers.between(host, first, "store"))
        if addresses is not None and not right and not set(addresses) & (own - {"127.0.0.1", "::1"}):
            wrong[host] = f"on {host}: {name} is {', '.join(addresses)}; {first} has {', '.join(sorted(_shown(own)))}"
    address = next((row[1] for row in prediction.reachable(answers.facts[first])), "<its address>")
    line = remedies.set_name_command(name, address)
    fix = f"on {listed([*blind, *wrong])}: {line}; or on {first}: torchrun --local-addr {address}"
    if blind:
        yield find(
            "peer-name-unresolvable",
            blind,
            f"{listed(blind)} cannot resolve {name}, the name that rank 0 on {first} announces",
            fix,
        )
    if wrong:
        yield find(
            "peer-name-wrong",
            tuple(wrong),
            f"on {listed(wrong)} the name of rank 0's host, {name}, does not resolve to {first}",
            fix,
            evidence=list(wrong.values()),
        )


def _shown(addresses: set[str]) -> list[str]:
    return [a for a in addresses if not prediction.is_loopback(a) and not a.startswith("fe80")]
