"""Find nodes that another node, or this machine, cannot reach during a run. Pure; called by findings.py."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence

from ...causes.end_causes import Cause
from ...core.text import in_seconds, ranks_in_words
from ..lost_host import BLAME_S, NOTICED_S
from ..state.evidence import Evidence
from .causes import Finding

# Other nodes report the same link some seconds later, and SSH needs some seconds to notice a lost host.
_LINKS_SETTLE_S = 6.0
# The finding comes a moment before the node counts as lost, so that the story knows why. Other nodes may have started
# again a little before its host fell silent.
_LOST_S, _AGAIN_S = BLAME_S - 1.0, 3.0
# Hosts whose silences began within this time count as having fallen silent together.
_TOGETHER_S = 2.0


def _pairs(evidence: Evidence) -> dict[tuple[str, str], float]:
    """The pairs of nodes of which one does not acknowledge what the other sends, and since when.

    A node that sends nothing to another does not notice that its answers are missing. So an unanswered call counts,
    too, if the called machine answers some other node.
    """
    pairs: dict[tuple[str, str], float] = {}
    answering = {evidence.nodes.node_at(peer) for links in evidence.ranks.links.values() for _, peer in links.answering}
    for links in evidence.ranks.links.values():
        called = ((own, peer) for own, peer in links.silent if evidence.nodes.node_at(peer) in answering)
        for own, peer in (*links.unanswered, *called):
            if _is_on_internet(evidence.nodes.node_at(peer)):
                continue
            ends = sorted({links.node or evidence.nodes.node_at(own), evidence.nodes.node_at(peer)})
            if len(ends) == 2 and not any(evidence.nodes.troubles.get(end, ("",))[0] == "paused" for end in ends):
                pair = ends[0], ends[1]
                pairs[pair] = min(pairs.get(pair, links.t), links.t)
    return pairs


def _is_on_internet(end: str) -> bool:
    """Whether a link ends at a server on the internet, which is not a node: a script may lose it without harm."""
    try:
        return ipaddress.ip_address(end).is_global
    except ValueError:  # a node's name
        return False


def cut_off(evidence: Evidence, now: float) -> list[Finding]:
    """The links on which nothing that is sent is acknowledged, or the one node that all of these links lead to."""
    pairs = _pairs(evidence)
    if not pairs or now - (since := min(pairs.values())) < _LINKS_SETTLE_S:
        return []
    count = Counter(end for pair in pairs for end in pair)
    (node, most), *rest = count.most_common()
    unseen = [end for end in count if evidence.nodes.troubles.get(end, ("",))[0] == "unseen"]
    if len(unseen) == 1:
        others = sorted(count.keys() - {unseen[0]})
        text = f"{unseen[0]} is lost: it answers neither {', '.join(others)} nor SSH"
        return [Finding(Cause.NODE_LOST, text, unseen[0], evidence.ranks.only_rank(unseen[0]), t=since)]
    if most == len(pairs) > 1:
        others = sorted(end for end, _ in rest)
        text = f"{node} is cut off from {' and '.join(others)}: nothing that they send each other is acknowledged"
        return [Finding(Cause.CUT_OFF, f"{text}; SSH reaches it", node, evidence.ranks.only_rank(node), t=since)]
    findings = []
    for (side, other), t in sorted(pairs.items(), key=lambda item: item[1]):
        text = f"{side} and {other} are cut off from each other: neither acknowledges what the other sends"
        findings.append(Finding(Cause.CUT_OFF, text, side, other=other, t=t))
    return findings


def unseen(evidence: Evidence, now: float) -> list[Finding]:
    """The hosts that do not answer and that the other ranks wait for or have lost.

    A host of which only the engine is silent is not among them: its node may train, and then it has no trouble.
    """
    away = {n: t - NOTICED_S[trouble] for n, (trouble, t) in evidence.nodes.troubles.items() if trouble in NOTICED_S}
    lost = sorted((node for node, t in away.items() if now - t >= _LOST_S), key=lambda node: (away[node], node))
    # If no host answers, this machine is cut off. Another trouble of a node explains more than a silence.
    if not lost or set(evidence.ranks.began.values()) <= away.keys() or away.keys() < evidence.nodes.troubles.keys():
        return []
    who = _who_miss(evidence, away[lost[0]], lost)
    if not who:
        return []
    named = [node if (rank := evidence.ranks.only_rank(node)) is None else f"{node} (rank {rank})" for node in lost]
    single = len(lost) == 1
    silence = _silence(evidence, [now - away[node] for node in lost], lost)
    text = f"{' and '.join(named)} {'is' if single else 'are'} lost: {silence}, and {who} {'it' if single else 'them'}"
    noticed = min(evidence.nodes.troubles[node][1] for node in lost)
    return [Finding(Cause.NODE_LOST, text, lost[0], evidence.ranks.only_rank(lost[0]), t=noticed)]


def _silence(evidence: Evidence, silent_s: Sequence[float], lost: Sequence[str]) -> str:
    """For how long the lost hosts have been silent, in words; if there are several, the shortest silence."""
    since = in_seconds(min(silent_s))
    if len(lost) > 1:
        longer = " or longer" if max(silent_s) - min(silent_s) > _TOGETHER_S else ""
        return f"they have not answered for {since}{longer}"
    if evidence.nodes.troubles[lost[0]][0] == "lifeless":
        return f"its Docker engine does not answer, and its node has written nothing for {since}"
    return f"it has not answered for {since}"


def _who_miss(evidence: Evidence, since: float, lost: Sequence[str]) -> str:
    """The ranks or nodes that miss the lost hosts, in words; empty if none is known to miss them."""
    victims = [end for end in evidence.ranks.ends.values() if end.victim]
    if evidence.nodes.troubles[lost[0]][0] == "lifeless":  # ranks that failed while it still wrote lost another node
        victims = [end for end in victims if end.node in lost or end.t >= since - _AGAIN_S]
    # If a rank of the lost node is itself a victim, the others did not lose that node: its rank ended, and nothing
    # starts it again.
    if not {*lost} <= {end.node for end in victims} and (ranks := [e.rank for e in victims if e.node not in lost]):
        return f"{ranks_in_words(ranks)} lost"
    others = evidence.living
    if others and all(rank in evidence.ranks.stuck for rank in others):
        return f"{ranks_in_words(others)} wait{'s' if len(others) == 1 else ''} for"
    # Without the first host, the agents of the other nodes end, and their engines start them again.
    again = [node for node, t in evidence.nodes.came_back.items() if t >= since - _AGAIN_S and evidence.ranks.moved < t]
    return f"{' and '.join(sorted(again))} started again without" if again else ""
