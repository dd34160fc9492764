"""Get a base image to hosts that lack it, without uploading it: from a host of this push that has it, or a registry."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from ...core.errors import DeployError
from ...door.session import Session
from ..road.cargo import step_of
from ..road.road import Road
from . import registry
from .compression import CompressedLayer
from .model import Base
from .pull import Pull, pull
from .push_plan import Store

# How many hosts are asked to pass on the image, one after the other: an engine may have lost what it lists.
_MOST_GIVERS = 2
# Layers, unchanged, that one host of the push keeps for the other hosts.
HeldLayers = Mapping[str, CompressedLayer]


class BaseTransfer:
    """One push's transfers of a base. `look`: asks an engine what it has. `sources`: each host's bytes by source."""

    def __init__(self, road: Road, look: Callable[[Session], Store], note: Callable[[str], None]) -> None:
        self.road, self._look, self.note = road, look, note
        self.sources = defaultdict[str, Counter[str]](Counter)

    def pull(self, sessions: Sequence[Session], references: Sequence[str]) -> list[Pull]:
        """Let hosts pull an image by one of these references; pull.py decides which hosts."""
        pulls = pull(sessions, references, self.road.tell, self.note)
        for each in pulls:
            if each.worked and each.progress.came:
                self.sources[each.session.name][registry.registry_of(references[0])] += each.progress.came
        return pulls

    def distribute(
        self, base: Base, holders: Sequence[Session], lacking: Mapping[Session, Sequence[str]]
    ) -> HeldLayers:
        """Let the hosts get the base without sending it from here, and return the layers kept for those that lack some.

        If no host has the base, those that lack layers pull it, if they can. Then one host that has it keeps the layers
        that others still lack. Returns nothing if none are lacking, or if no host can pass them on.
        """
        givers, left = holders, [*lacking]
        if lacking and base.sources and not holders:
            givers = [each.session for each in self.pull(left, base.sources) if each.worked]
            left = [session for session in left if session not in givers]
        lacked = {layer for session in left for layer in lacking[session]}
        wanted = sorted(lacked, key=base.layers.index)
        for giver in givers[:_MOST_GIVERS] if wanted else ():
            try:
                return self._held(giver, base, wanted)
            except DeployError as fault:
                self.note(f"{giver.name} cannot pass on {base.name}: {fault.message}")
        return {}

    def _held(self, giver: Session, base: Base, wanted: Sequence[str]) -> HeldLayers:
        """Let a host keep layers for the others.

        The host reports each layer's pieces, and the engine that receives a layer checks its digest. What those engines
        are to call the image is decided here.
        """
        images = [each for each in self._look(giver).images if each.layers == base.layers]
        # An image that a push made may lack its layers' files, so the base itself is preferred.
        for image in sorted(images, key=lambda each: bool(each.mark))[:1]:
            parts = self.road.hold(giver, image.id, wanted, step_of(base.size), base.size)
            return {layer: CompressedLayer(layer, part.size, part) for layer, part in parts.items()}
        raise DeployError("its engine shows no image with these layers")
