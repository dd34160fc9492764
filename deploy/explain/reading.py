"""What one pass over a stream of output finds: lines, signs, and ends of processes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from .signs.kinds import Sign, Weight

# After one rank has failed, other ranks may still print this many lines.
_SHORT_WHILE = 40


@dataclass(frozen=True)
class Line:
    """A line and its position. node: the file, or its node; who: the host and rank from the line's prefix."""

    node: str
    number: int
    text: str
    who: str = ""

    @property
    def speaker(self) -> str:
        """Who printed the line: its host and rank if known, else its node."""
        return self.who or self.node


@dataclass(frozen=True)
class Hit:
    """A sign found in the log; `sign` is None for an exception that no sign describes.

    frame: the innermost file of its traceback. time: in seconds since the year began. caught: what the sign's pattern
    captured. quiet: it is a warning, was raised in a thread (which does not end the process), or wraps another error.
    """

    sign: Sign | None
    line: Line
    time: float | None = None
    rank: str = ""
    frame: str = ""
    caught: tuple[str, ...] = ()
    error: str = ""
    quiet: bool = False

    @property
    def weight(self) -> Weight:
        """How much the hit says about the cause; a warning says little, whatever its words."""
        if self.sign is None:
            return Weight.HINT if self.quiet else Weight.GENERAL
        return min(self.sign.weight, Weight.HINT) if self.quiet else self.sign.weight

    @property
    def contradicts(self) -> bool:
        """Whether the hit contradicts a report of a good end: a crash, or a wait for a rank that never came."""
        return self.sign is not None and bool(self.sign.cause) and not self.quiet


@dataclass(frozen=True)
class Root:
    """A launcher's report of a process that failed by itself. named: the launcher says that it failed first.

    local: its local rank, if the launcher reports it.
    """

    rank: str = ""
    host: str = ""
    exitcode: int | None = None
    time: float | None = None
    named: bool = False
    line: Line | None = None
    local: int | None = None


@dataclass(frozen=True)
class Wait:
    """A rank that waits in a collective: `number` is the sequence number of the call in its group."""

    rank: int
    group: str
    number: int
    kind: str
    size: str
    line: Line


@dataclass
class Reading:
    """What was found in one stream.

    calls: failed calls to a store; at_rendezvous: a call to the rendezvous store failed. victims: how many lines come
    from ranks that lost a peer. waits: ranks that wait in a collective. number: the number of lines. last: the last
    line; errors: the first lines that look like an error; last_error: the last of them. ranks: the numbers of all ranks
    in the output; world: how many ranks the run has, 0 if the output does not say it. nan: the last line of training,
    if it and the one before it have a loss that is not a number. traced: whether there is a traceback. unread: the
    number of lines skipped for lack of time; cut: there was no time to read the rest. progress, well, badly: the number
    of the last line of training, of a good end, and of a bad end; 0 if there is none.
    """

    node: str
    hits: list[Hit] = field(default_factory=list)
    roots: list[Root] = field(default_factory=list)
    calls: list[Line] = field(default_factory=list)
    at_rendezvous: bool = False
    waits: list[Wait] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    world: int = 0
    victims: int = 0
    number: int = 0
    last: Line | None = None
    errors: list[Line] = field(default_factory=list)
    last_error: Line | None = None
    last_time: float | None = None
    traced: bool = False
    nan: Line | None = None
    unread: int = 0
    cut: bool = False
    progress: int = 0
    well: int = 0
    badly: int = 0

    @property
    def ended_well(self) -> bool:
        """Whether the stream reports a good end, followed by nothing bad and no more training."""
        last = max((hit.line.number for hit in self.hits if self._is_fatal(hit) or hit.contradicts), default=0)
        last = max(last, self.badly, self.progress - _SHORT_WHILE)
        return not self.cut and self.well > last

    @property
    def fatal(self) -> list[Hit]:
        """Hits that may have ended the run: no warnings, no messages from victims, and no training after them."""
        return [hit for hit in self.hits if self._is_fatal(hit)]

    def _is_fatal(self, hit: Hit) -> bool:
        return hit.weight >= Weight.GENERAL and self.progress <= hit.line.number + _SHORT_WHILE
