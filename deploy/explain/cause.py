"""`muster explain`: from the output of a failed run to its cause, or to what to check next. Pure.

The earliest fatal sign is the cause: by time if the lines have times, else by position. torchrun's own report of the
first failure says which rank to believe. Messages from ranks that lost a peer, and warnings, are a cause only if
nothing else is. If the same words have several causes, all of them are given; without known words the cause is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from ..causes.table import DOCS, end_of
from . import unreached_store
from .blame import bad_end, by_script, raised_in, sign_by_words
from .lines import YEAR, in_order
from .read import read
from .reading import Hit, Line, Reading, Root
from .refine import OF_WANDB, SAYS_WANDB
from .signs.general import kind_by
from .signs.kinds import ALONE, KERNEL, PREFLIGHT, Sign, Weight
from .signs.table import SIGNALS, SIGNS
from .victims import is_victim, mute_ranks, odd_ones, same_rank
from .words import BAD_END, WRONG, compile_limited

# The message of a wrapper is at most this many lines before or after the message that it wraps.
_NEAR = 120
# The most ranks on one host that a hint suggests: torchrun gives each rank a GPU.
_ON_A_HOST = 8
# Two messages if no known sign is found; only the second claims that the error is missing.
_UNKNOWN_ERRORS = "Muster recognizes none of its errors as a cause; the last error is shown"
_NO_ERROR = "its own error is not in this output"
# The number of lines at the end of an output that may say why it ended.
_LATE = 3
# A warning after which the process has no GPU: the cause if nothing else is known.
_NO_CUDA = compile_limited(r"cudaGetDeviceCount\(\)\..{0,200}Error \d{3}\b")
# A message with the number of the rank that it is about, or that wrote it.
_NAMED_RANK = compile_limited(r"(?:\[(?:PG [^\]]{0,80})?Rank |^\W*rank +: |^\w*(?:Error|Exception): Rank )(\d+)\b")


class Moment(Protocol):
    """An event in a run's story."""

    @property
    def t(self) -> float:
        """The time of the event."""

    @property
    def text(self) -> str:
        """What happened."""

    @property
    def grave(self) -> bool:
        """Whether the event is so important that a reader must see it."""


@dataclass(frozen=True)
class Explanation:
    """The cause that the output shows (empty: unknown); `maybe` has other causes with the same words.

    first: who failed first, if the output says so. script: the script itself is at fault. victims: the number of
    messages from ranks that lost a peer. silent: nodes whose output stops before that of the others, without an error
    or an end. ended_well: nothing failed. hosts: the hosts that launchers mention.

    unread: by stream, the number of lines that were skipped for lack of time, and the line from which on nothing was
    read (0: everything was). left_out: what in a folder was not opened, in words.

    Only for a run of Muster's: story: the grave events of its timeline. contradicted: how its logs alone contradict its
    verdict. quoted: the evidence quotes the verdict, and its line is in one of these logs. hint: the verdict's hint.
    """

    cause: str
    what: str
    maybe: tuple[str, ...] = ()
    evidence: tuple[Line, ...] = ()
    next: str = PREFLIGHT
    first: str = ""
    script: bool = False
    victims: int = 0
    silent: tuple[str, ...] = ()
    ended_well: bool = False
    hosts: tuple[str, ...] = ()
    story: tuple[Moment, ...] = ()
    contradicted: str = ""
    quoted: tuple[str, ...] = ()
    unread: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    hint: str = ""

    @property
    def says_more(self) -> bool:
        """Whether the cause says more than that a script failed: its exception says that already."""
        return self.cause not in ("", "script-error")

    def json(self) -> dict[str, Any]:
        """The explanation for `--json`. group: the end cause (a closed list) that `cause` belongs to."""
        return {**asdict(self), "group": end_of(self.cause), "docs": f"{DOCS}#{self.cause}" if self.cause else DOCS}


def explain(texts: Mapping[str, str]) -> Explanation:
    """Find the cause in texts, by node; `cause` is empty if it is unknown."""
    return judge([read(node, [text.encode()]) for node, text in texts.items()])


def judge(readings: Sequence[Reading], left_out: Sequence[str] = ()) -> Explanation:
    """Find the cause in the readings of streams, one per file. `left_out`: files that were not opened, in words."""
    unread = {
        reading.node: (reading.unread, (reading.number + 1) * reading.cut)
        for reading in readings
        if reading.unread or reading.cut
    }
    return replace(_judged(readings, not left_out), unread=unread, left_out=tuple(left_out))


def _judged(readings: Sequence[Reading], are_all: bool) -> Explanation:
    root = _root(readings)
    hits = _in_order(readings)
    grave = {id(hit) for reading in readings for hit in reading.fatal}
    fatal = [hit for hit in hits if id(hit) in grave]
    silent = _silent(readings)
    victims = sum(reading.victims for reading in readings)
    with_lines = [reading for reading in readings if reading.number]
    if are_all and not fatal and with_lines and all(reading.ended_well for reading in with_lines):
        return Explanation("", "it ended well: nothing in it failed", ended_well=True, next="muster fetch --hosts ...")
    store = unreached_store.explained(readings)
    hit = _chosen(fatal, root)
    odd = odd_ones([wait for reading in readings for wait in reading.waits])
    if store and (hit is None or hit.weight < Weight.CAUSE or hit.sign is None):
        cause, what, maybe, lines, then = store
        explanation = Explanation(cause, what, maybe, lines, then)
    elif hit is not None:
        explanation = _explained_by(hit, hits)
    elif odd is not None:
        who, what, lines = odd
        what = f"{who} {'are' if who.startswith('ranks') else 'is'} {what}"
        explanation = Explanation("collectives-differ", what, ("collective-timeout",), lines)
    else:
        explanation = _without_fatal(readings, hits, root, silent)
    lost = hit is None and root is not None and is_victim(root, readings)
    first = "" if lost else _first(hit, root, alone=len(readings) == 1)
    if hit is None and odd is not None:
        first = odd[0]
    hosts = tuple(dict.fromkeys(root.host for reading in readings for root in reading.roots if root.host))[:64]
    then = explanation.next
    if then == ALONE:
        then = _with_rank(first, root)
    elif any(SAYS_WANDB.search(line.text) for line in explanation.evidence):
        then = OF_WANDB.get(explanation.cause, then)
    return replace(explanation, next=then, first=first, victims=victims, silent=silent, hosts=hosts)


def _with_rank(first: str, root: Root | None) -> str:
    """The command that starts ranks on one host, up to the one that failed first; for a high number, `muster logs`."""
    named = re.match(r"(?:(local rank|process)|rank|task) (\d{1,6})\b", first)
    if named is None:
        return ALONE
    number = int(named[2])
    if not named[1] and root is not None and root.local is not None and same_rank(root.rank, f"rank {number}"):
        number = root.local
    return (
        ALONE.replace(" 1 ", f" {number + 1} ") if number < _ON_A_HOST else f"muster logs --hosts ... --rank {number}"
    )


def _in_order(readings: Sequence[Reading]) -> list[Hit]:
    """All hits, the earliest first: by time if all fatal ones have a time, otherwise by position."""
    hits = [hit for reading in readings for hit in reading.hits]
    timed = [hit for hit in hits if hit.weight >= Weight.GENERAL]
    if len(readings) > 1 and timed and all(hit.time is not None for hit in timed):
        hits.sort(key=in_order(hits))
    return hits


def _root(readings: Iterable[Reading]) -> Root | None:
    """The process that failed first, according to the launchers: by time; if times are equal, torchrun's own choice."""
    roots = [root for reading in readings for root in reading.roots]
    moment = in_order(roots)
    return min(roots, key=lambda root: (moment(root), not root.named), default=None)


def _chosen(fatal: Sequence[Hit], root: Root | None) -> Hit | None:
    """The earliest fatal hit, of the rank that a launcher reports first; a wrapped message rather than its wrapper."""
    if not fatal:
        return None
    own = [hit for hit in fatal if root and same_rank(root.rank, hit.rank)]
    first = (own or fatal)[0]
    if first.weight == Weight.CAUSE or by_script(first):
        return first
    near = [hit for hit in (own or fatal) if _near(first, hit)]
    signal = SIGNALS.get(root.exitcode or 0) if root else None
    causes = [hit for hit in near if hit.weight == Weight.CAUSE]
    if causes:
        return causes[0]
    if signal:
        ended = [hit for hit in fatal if hit.sign is not None and hit.sign.cause == signal]
        return ended[0] if ended else first
    named = [hit for hit in near if hit.sign is not None and hit.sign.cause]
    return (named or [hit for hit in near if by_script(hit)] or near or [first])[0]


def _near(first: Hit, hit: Hit) -> bool:
    if hit.rank and first.rank and hit.rank != first.rank:
        return False
    return hit.line.node != first.line.node or abs(hit.line.number - first.line.number) <= _NEAR


def _explained_by(chosen: Hit, hits: Sequence[Hit]) -> Explanation:
    """The explanation from the chosen hit, with other lines that have the same words."""
    alike = [
        hit.line
        for hit in hits
        if hit.sign == chosen.sign and hit.weight == chosen.weight and hit.error == chosen.error
    ]
    lines = tuple(dict.fromkeys((chosen.line, *alike)))[:3]
    sign = chosen.sign
    if sign is None and by_script(chosen):
        what = f"the script failed: {chosen.error}"
        return Explanation("script-error", what, (), lines[:2], ALONE, script=True)
    if sign is None:
        # A library's exception may have a cause elsewhere: five of fourteen times, if no rule knows its words.
        what = f"Muster recognizes no cause; the first error is {chosen.error}"
        return Explanation("", what, ("exception",), lines[:2], ALONE)
    what = _filled_words(sign, chosen)
    if sign.absent and (reason := _reason(chosen, hits)):
        return Explanation(sign.cause, f"{what}: {reason.caught[0]}", sign.maybe, (reason.line, *lines)[:3], ALONE)
    return Explanation(sign.cause, what + sign.absent, sign.maybe, lines, sign.next, script=sign.script)


def _reason(chosen: Hit, hits: Sequence[Hit]) -> Hit | None:
    """The reason for a failure that gives none: from its own rank (after it, then before it), else from any rank."""
    reasons = [hit for hit in hits if hit.weight == Weight.REASON]
    own = [hit for hit in reasons if hit.line.node == chosen.line.node and hit.rank == chosen.rank]
    behind = [hit for hit in own if hit.line.number > chosen.line.number and _near(chosen, hit)]
    return next(iter((*behind, *reversed(own), *reasons)), None)


def _without_fatal(
    readings: Sequence[Reading], hits: Sequence[Hit], root: Root | None, silent: tuple[str, ...]
) -> Explanation:
    """The explanation if there is no fatal sign: from a warning, a victim's message, a silent node, or an exit code."""
    past = [hit for hit in hits if hit.weight == Weight.CAUSE or by_script(hit)]
    if past:
        latest = _explained_by(past[-1], hits)
        known = any(max(r.well, r.badly) > r.progress or r.roots for r in readings)
        how = "" if known else ", and nothing says how it ended"
        return replace(latest, what=f"{latest.what}; but training continued after that{how}")
    alive = _not_survived(hits, readings)
    worse = any(r.victims or r.roots or r.badly or r.traced or r.errors for r in readings)
    hints = [hit for hit in alive if hit.weight == Weight.HINT and not (hit.quiet and _serious(hit) and worse)]
    waits = [hit for hit in alive if hit.sign is not None and hit.weight == Weight.VICTIM and hit.sign.cause]
    if waits:
        return _waited(waits, _look_at(readings, silent))
    sure = [hit for hit in hints if hit.sign is None or hit.sign.cause]
    if sure and not all(reading.ended_well for reading in readings):
        of_sure = _explained_by(sure[0], hits)
        warned = sure[0].quiet and _serious(sure[0]) and not _NO_CUDA.search(sure[0].line.text)
        return _likely(of_sure) if warned else of_sure
    if root is not None and root.exitcode in SIGNALS:
        return _from_root(root, readings)
    by_errors = _from_errors(readings, [hit.line for hit in hits if hit.weight == Weight.VICTIM])
    if by_errors is not None and (by_errors.cause or not hints):
        return by_errors
    if hints:
        return _explained_by(hints[0], hits)
    victims = [hit.line for hit in alive if hit.weight == Weight.VICTIM and "SIGTERM" not in hit.line.text][:3]
    if victims:
        where = _look_at(readings, silent) or "the output of all ranks is needed"
        what = f"these lines come from ranks that lost a peer, not from the rank that failed; {where}"
        return Explanation("", what, evidence=tuple(victims), next=KERNEL if silent else "muster logs --hosts ...")
    blind = [hit for hit in alive if _NO_CUDA.search(hit.line.text)]
    if blind:
        return _explained_by(blind[0], hits)
    return _from_root(root, readings) if root is not None else _without_signs(readings)


def _from_root(root: Root, readings: Sequence[Reading]) -> Explanation:
    """The explanation from a launcher's report of the first failure: its signal, or only that the process failed."""
    lines = (root.line,) if root.line else ()
    cause = SIGNALS.get(root.exitcode or 0, "")
    code = f"exitcode: {root.exitcode}"
    sign = next((sign for sign in SIGNS if cause and sign.cause == cause and sign.pattern.search(code)), None)
    who = _first(None, root) or "a process"
    if sign is not None:
        return Explanation(cause, f"{who}: {sign.what}", sign.maybe, lines, sign.next)
    errors = tuple(line for line in _errors_of(readings) if line != root.line)
    what = f"{who} failed first; {_UNKNOWN_ERRORS if errors else _NO_ERROR}"
    return Explanation("", what, evidence=(*lines, *errors)[:3], next="muster logs --hosts ... --rank N")


def _from_errors(readings: Sequence[Reading], victims: Sequence[Line]) -> Explanation | None:
    """The explanation from lines that look like an error: by common words, or by an exception somewhere in the line."""
    lost = set(victims)
    errors = [line for reading in readings for line in _errors(reading) if line not in lost]
    kinds = [(sign, line) for line in errors if (sign := kind_by(line.text)) is not None]
    for sign, line in [pair for pair in kinds if pair[0].cause] or kinds:
        return Explanation(sign.cause, sign.what, sign.maybe, (line,), sign.next)
    raised = [(line, raised_in(line.text)) for line in errors]
    raised += [(reading.last, bad_end(reading.last.text)) for reading in readings if reading.last is not None]
    for line, error in raised:
        if error:
            return _explained_by(Hit(sign_by_words(error), line, error=error), [])
    return None


def _errors(reading: Reading) -> list[Line]:
    """The lines of a stream that look like an error; "could not do something" counts only at the end of the stream."""
    lines = dict.fromkeys(line for line in (*reading.errors, reading.last_error) if line is not None)
    return [line for line in lines if WRONG.search(line.text) or line.number > reading.number - _LATE]


def _without_signs(readings: Sequence[Reading]) -> Explanation:
    """The explanation if there is no sign at all: it shows the last line that looks like an error."""
    # NCCL may print a reason although no line says that it failed.
    errors = _errors_of(readings) or [hit.line for r in readings for hit in r.hits if hit.weight == Weight.REASON]
    lasts = [reading.last for reading in readings if reading.last]
    if errors:
        what = _UNKNOWN_ERRORS
        if all(BAD_END.search(line.text) for line in errors):
            what = f"a process failed; {_NO_ERROR}"
        return Explanation("", what, evidence=tuple(errors[:2]), next="muster logs --hosts ...")
    if nan := next((reading.nan for reading in readings if reading.nan), None):
        what = "the loss is no longer a number in the last lines of training"
        return Explanation("loss-nan", what, evidence=(nan,), next="grep -n -i -m 1 'loss.*nan' LOG")
    if not lasts:
        return Explanation("", "the output is empty", next="muster logs --hosts ...")
    if any(reading.traced or reading.badly for reading in readings):
        what = "something failed, but Muster does not recognize its error; the last line is shown"
        return Explanation("", what, evidence=tuple(lasts[:1]), next="muster logs --hosts ...")
    what = "no line looks like an error; nodes that wait for each other print nothing until a timeout"
    return Explanation("", what, evidence=tuple(lasts[:1]))


def _errors_of(readings: Sequence[Reading]) -> list[Line]:
    """For each stream, its last line that looks like an error."""
    return [reading.last_error for reading in readings if reading.last_error]


def _likely(explanation: Explanation) -> Explanation:
    """The explanation with its cause moved to the possible ones: it is no longer stated as certain."""
    maybe = tuple(filter(None, (explanation.cause, *explanation.maybe)))
    return replace(explanation, cause="", maybe=maybe, script=False)


def _serious(hit: Hit) -> bool:
    """Whether the sign usually ends a run. (If it was only a warning here, another fault is the cause.)"""
    return hit.sign is not None and hit.sign.weight > Weight.HINT


def _not_survived(hits: Sequence[Hit], readings: Iterable[Reading]) -> list[Hit]:
    """The hits after which training did not continue."""
    progress = {reading.node: reading.progress for reading in readings}
    return [hit for hit in hits if progress[hit.line.node] <= hit.line.number + _NEAR]


def _look_at(readings: Sequence[Reading], silent: tuple[str, ...]) -> str:
    """Where to look for the rank that the others lost: at silent nodes, or at ranks without an error of their own.

    Empty if there are none.
    """
    if silent:
        return f"{', '.join(silent)} stopped printing, without an error or an end: look there"
    mute = mute_ranks(readings)
    return f"look at {mute}, which shows no error here: it may hang, or have left with code 0" if mute else ""


def _waited(waits: Sequence[Hit], where: str) -> Explanation:
    sign = waits[0].sign
    assert sign is not None
    lines = tuple(hit.line for hit in waits[:3])
    what = _filled_words(sign, waits[0])
    if where:
        what += f"; {where}"
    return Explanation(sign.cause, what, sign.maybe, lines, sign.next)


def _filled_words(sign: Sign, hit: Hit) -> str:
    return sign.what.format(*hit.caught, "", "").replace(" ()", "").replace("  ", " ")


def _first(chosen: Hit | None, root: Root | None, alone: bool = False) -> str:
    """Who failed first, from a launcher's report or from the chosen line."""
    own = chosen.rank if chosen is not None and chosen.weight >= Weight.GENERAL else ""
    if root is not None and (root.rank or root.host) and (not own or not root.rank or same_rank(own, root.rank)):
        code = "" if root.exitcode is None else f" (exit code {root.exitcode})"
        on = f" on {root.host}" if root.host else ""
        return f"{root.rank}{on}{code}" if root.rank else f"{root.host}{code}"
    if chosen is None:
        return ""
    if alone and not chosen.line.who:
        named = _NAMED_RANK.search(chosen.line.text)
        return f"rank {named[1]}" if named else ""
    return chosen.line.speaker if alone else " in ".join(dict.fromkeys((chosen.line.speaker, chosen.line.node)))


def _silent(readings: Sequence[Reading]) -> tuple[str, ...]:
    """The streams that stop before the others, without an error or an end, while others failed."""
    if len(readings) < 2 or not any(hit for reading in readings for hit in reading.hits):
        return ()
    mute = [r for r in readings if not (r.hits or r.roots or r.calls or r.last_error or r.well or r.badly)]
    if not mute or len(mute) == len(readings):
        return ()
    silent = {reading.node for reading in mute}
    ends = [r.last_time for r in readings if r.node not in silent and r.last_time is not None]
    return tuple(
        r.node
        for r in mute
        if r.last_time is None or not ends or any((end - r.last_time) % YEAR < YEAR / 2 for end in ends)
    )
