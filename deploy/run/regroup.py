"""The story of nodes that train on without others, or with them again (`--min-nodes`), in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.text import several, subject
from .events import Event


def words(event: Event, script: bool = False) -> str:
    """What an event `members` says, with `{step}` for where they train on; empty if the same nodes train.

    Only a `script` itself knows where it goes on.
    """
    members, before = event["members"], event["before"]
    gone = [name for name in before if name not in members]
    left = [name for name in gone if name in event.get("left", ())]
    lost = [name for name in gone if name not in left]
    spares = [name for name in members if name not in before and name in event.get("spares", ())]
    back = [name for name in members if name not in (*before, *spares)]
    if not (gone or back or spares):
        return ""
    news = [_named(lost, "is lost", "are lost"), _named(left, "has left", "have left")]
    news += [_named(back, "is back", "are back")]
    news += [_named(spares, "takes a free place", "take free places")]
    on = f"{_named(members, 'trains', 'train')} on from step {{step}}"
    if script:
        on = f"{_named(members, 'starts', 'start')} the script again from what it kept"
    return f"{'; '.join(filter(None, news))}: {on} ({len(members)} of {several(event['planned'], 'node')})"


def apart(event: Event, news: str) -> str:
    """The `news` of a loss, with what an event `apart` says of it; empty if that loss is not in the news."""
    lost, cut = f"{event['left_out']} is lost", cut_off(event)
    return news.replace(lost, cut) if lost in news else ""


def cut_off(event: Event) -> str:
    """What an event `apart` says."""
    return _named([event["left_out"], *event["others"]], "", "are cut off from each other")


def _named(names: Sequence[str], singular: str, plural: str) -> str:
    return subject(names, singular, plural, len(names)) if names else ""
