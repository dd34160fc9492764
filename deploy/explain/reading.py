"""What one pass over a stream of output finds: lines, signs, ends of processes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from .signs.kinds import Sign, Weight

# Other ranks still print some lines after one has failed.
_SHORT_WHILE = 40


@dataclass(frozen=True)
class Line:
    """The place of a message. node: the file, or its node; who: the host and rank that the line names."""

    node: str
    number: int
    text: str
    who: str = ""

    @property
    def speaker(self) -> str:
        """Who printed it, if known."""
        return self.who or self.node


@dataclass(frozen=True)
class Hit:
    """A sign in the log; `sign` is None for an exception that no sign describes.

    frame: the innermost file of its traceback. time: in seconds of the year. quiet: a warning, or raised in a
    thread, which ends no process, or the words around another error.
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
        """How much the sign says; a warning says little, whatever its words."""
        if self.sign is None:
            return Weight.HINT if self.quiet else Weight.GENERAL
        return min(self.sign.weight, Weight.HINT) if self.quiet else self.sign.weight

    @property
    def contradicts(self) -> bool:
        """Whether it says that a good end was none: a crash, or a wait for a rank that never came."""
        return self.sign is not None and bool(self.sign.cause) and not self.quiet


@dataclass(frozen=True)
class Root:
    """What a launcher says of a process that failed and that it did not end itself. named: as the first one.

    local: its local rank, if the launcher says it.
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
    """A rank in a collective: `number` counts the calls of its group."""

    rank: int
    group: str
    number: int
    kind: str
    size: str
    line: Line


@dataclass
class Reading:
    """The content of one stream.

    calls: failed calls to a store; at_rendezvous: to that of the rendezvous. victims: lines of ranks that lost a peer.
    waits: of ranks in a collective.
    number: of lines. last: the last line; errors: the first lines that look like an error; last_error: the last one.
    ranks: the numbers of all ranks that the output names; world: how many the run has, 0 where nothing says it.
    nan: the last line of training, where it and the one before it have a loss that is no number.
    traced: whether a traceback is in it. unread: lines with no time to look at them; cut: nor to read the rest.
    progress, well, badly:
    the last line of training, of a good end, of a bad end; 0 if there is none.
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
        """Whether the stream reports a good end, and after it nothing bad and no more training."""
        last = max((hit.line.number for hit in self.hits if self._is_fatal(hit) or hit.contradicts), default=0)
        last = max(last, self.badly, self.progress - _SHORT_WHILE)
        return not self.cut and self.well > last

    @property
    def fatal(self) -> list[Hit]:
        """Hits that may have ended the run: no warning, no message of a victim, nothing followed by more training."""
        return [hit for hit in self.hits if self._is_fatal(hit)]

    def _is_fatal(self, hit: Hit) -> bool:
        return hit.weight >= Weight.GENERAL and self.progress <= hit.line.number + _SHORT_WHILE
