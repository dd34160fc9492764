"""How a base comes to hosts that lack it without leaving here: from a host of this push that has it, or a registry."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence

from ...core.errors import DeployError
from ...core.text import last_line
from ...door.session import Session, on_all
from ..road.cargo import Cargo, step_of
from ..road.road import Road
from . import commands, registry
from .model import Base
from .pull import Pull, pull
from .push_plan import Store

# So many hosts, and images of each, are tried one after the other: an engine may have lost what it names.
_MOST_GIVERS, _MOST_IMAGES = 2, 3


class Bringing:
    """Of one push. `look` asks an engine what it has. `sources`: the bytes that came to each host, by who sent them."""

    def __init__(self, road: Road, look: Callable[[Session], Store], note: Callable[[str], None]) -> None:
        self._road, self._look, self._note = road, look, note
        self.sources = defaultdict[str, Counter[str]](Counter)

    def pull(self, sessions: Sequence[Session], references: Sequence[str]) -> list[Pull]:
        """Let hosts pull an image that has these names, as pull.py decides."""
        pulls = pull(sessions, references, self._road.tell, self._note)
        for each in pulls:
            if each.worked and each.progress.came:
                self.sources[each.session.host.name][registry.registry_of(references[0])] += each.progress.came
        return pulls

    def bring(self, base: Base, having: Sequence[Session], lacking: Sequence[Session], bare: Collection[str]) -> None:
        """Bring the base to those that lack some of it; `bare`: they have no layer at all. Who does not get it keeps
        lacking it."""
        givers, takers = having, [session for session in lacking if session.host.name in bare]
        if lacking and base.sources and not having:
            givers = [each.session for each in self.pull(lacking, base.sources) if each.worked]
            takers = [session for session in lacking if session not in givers]
        for giver in givers[:_MOST_GIVERS]:
            takers = self._pass_on(giver, takers, base) if takers else takers
        rest = [session for session in lacking if session in takers or session.host.name not in bare]
        if rest and base.sources and having:
            self.pull(rest, base.sources)

    def _pass_on(self, giver: Session, takers: Sequence[Session], base: Base) -> list[Session]:
        """Let them load it from a host that has it; those that could not."""
        try:
            cargo = self._saved(giver, base)
        except DeployError as failed:
            self._note(f"{giver.host.name} cannot pass on {base.name}: {failed.message}")
            return [*takers]

        def load(session: Session) -> None:
            done, came = self._road.deliver(session, commands.load_image(), cargo)
            self.sources[session.host.name] += came
            if done.code:
                raise DeployError(f"its engine refuses it: {last_line(done.err.encode())}")

        loaded = on_all(takers, load, cap=len(takers))
        for host, fault in loaded.faults.items():
            self._note(f"{host}: does not get {base.name} from {giver.host.name}: {fault.message}")
        return [session for session in takers if session.host.name in loaded.faults]

    def _saved(self, giver: Session, base: Base) -> Cargo:
        """What its engine saves of the base, kept there. Raises DeployError."""
        images = [each for each in self._look(giver).images if each.layers == base.layers]
        # One that a push made may be without its layers' files: the base itself comes first.
        images.sort(key=lambda each: bool(each.mark))
        last = DeployError("its engine shows no image with these layers")
        for image in images[:_MOST_IMAGES]:
            try:
                return self._road.hold(giver, commands.save_image(image.id), step_of(base.size), base.size)
            except DeployError as fault:
                last = fault
        raise last
