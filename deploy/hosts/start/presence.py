"""Which of a run's images the hosts already have before a push, and whether it is the same on all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from ...engine import images as engine_images
from ...host.reached import ReachedHosts
from ...send.image.model import base_of
from ...send.image.push_plan import HostImage, is_based_on
from . import probes


@dataclass(frozen=True)
class ImagePresence:
    """An image, and what each host has under its name; `everywhere`: all hosts have the same image.

    `broken`: by host, the error of an engine that has an image with such a name but cannot inspect it. `other_base`:
    the hosts' image is not built on the base that this machine has under that name. `shut`: why no probe can run in the
    image, although all hosts have it.
    """

    image: str
    by_host: Mapping[str, HostImage]
    everywhere: bool
    broken: Mapping[str, str] = field(default_factory=dict)
    other_base: bool = False
    shut: str = ""


def presence_of(hosts: ReachedHosts, images: Sequence[str], other_base: bool = False) -> ImagePresence:
    """The first image that is the same on all hosts. Otherwise the last one, which is the base of the others.

    An image that an earlier push built on another base does not count; with `other_base`, it counts if no other image
    does.
    """
    with_engine, images = hosts.with_sessions_to(hosts.facts).sessions, [*dict.fromkeys(images)]
    with ThreadPoolExecutor(1) as pool:  # this machine's engine answers in parallel with the hosts' engines
        ours = pool.submit(engine_images.inspect, images[-1])
        held = probes.images(with_engine, images)
    inspected = ours.result()
    base = base_of(images[-1], inspected) if inspected else None
    broken: dict[str, str] = {}
    second = None
    for number, image in enumerate(images):
        unasked = [session for session in with_engine if image not in held.get(session.name, {})] if number else []
        for host, more in probes.images(unasked, images[number:]).items():
            held.setdefault(host, {}).update(more)
        answers = {host: each[image] for host, each in held.items() if image in each}
        # Docker 28 also lists an image whose layers never arrived, and shows no layers for it.
        by_host = {host: each for host, each in answers.items() if isinstance(each, HostImage) and each.layers}
        broken |= {host: each for host, each in answers.items() if isinstance(each, str) and each}
        identical = len({(each.layers, each.mark) for each in by_host.values()}) == 1
        on_base = all(base is None or is_based_on(base, each) for each in by_host.values())
        everywhere = identical and set(by_host) == set(hosts.facts)
        if everywhere and on_base:
            return ImagePresence(image, by_host, True, broken)
        if everywhere and other_base:
            second = second or ImagePresence(image, by_host, True, other_base=True)
    return replace(second, broken=broken) if second else ImagePresence(image, by_host, False, broken)
