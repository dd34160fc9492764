"""Sentences for a run's story: one for each event that needs no memory. Pure.

story.py itself writes the lines that depend on earlier events, such as restarts and losses.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ...core.facts import NodeState
from ...core.text import amount, in_seconds, percent, several, subject
from ..environment import CACHE, RUNS_IN_CONTAINER
from ..events import Event


def sentence_of(event: Event) -> tuple[str, bool] | None:
    """The sentence for an event, and whether it is grave; None for an event of another kind."""
    message = event.get("message", "")
    match event.get("kind"):
        case "checkpoint_failed":
            return f"checkpoint at step {event.get('step')} failed: {message}", True
        case "checkpoint_damaged":
            return f"skipped a damaged checkpoint: {message}", True
        case "own_library":
            return f"`import muster` loads the script's own {event['path']}, not Muster's library", False
        case "shared":
            what = f"{several(event['files'], 'file')} ({amount(event['bytes'])})"
            return f"copying {what} from {event['source']} to {event['node']}", False
        case "put_aside":
            return _put_aside(event)
        case "evaluated":
            return _evaluated(event), False
        case "outside":
            return _outside(event)
        case "role":
            return _of_role(event)
    return None


def _of_role(event: Event) -> tuple[str, bool] | None:
    """The phase that a node of a role is in, if that is news to a person who follows the run."""
    role, node = event["role"], event["node"]
    who = node if node == role or node.startswith(f"{role}-") else f"{role} on {node}"
    if event["phase"] == "ready":
        return f"{who} is ready", False
    restarts = event.get("restarts", 1)
    # A program that dies immediately may start again for ever: only restarts 1, 2, 4, 8 and so on are told.
    if not event.get("again") or restarts & (restarts - 1):
        return None
    why = event.get("why", "") or "has ended"
    return f"{who} {why}: it starts again (restart {restarts})", True


def _put_aside(event: Event) -> tuple[str, bool]:
    """What happened to the files of earlier starts, when a start begins from scratch."""
    files = several(event["files"], "file") if event["files"] else "files"
    what, why = f"{files} ({amount(event['bytes'])}) from earlier starts on {event['node']}", event.get("message", "")
    if not event["place"]:
        return f"{what} could not be put aside, and this start may overwrite them: {why}", True
    return f"{what} are kept in {event['place']}/" + f" ({why})" * bool(why), False


def _evaluated(event: Event) -> str:
    values = event.get("values", {})
    parts = [f"held-out {name} {value:.3g}" for name, value in values.items() if name != "accuracy"]
    if "accuracy" in values:
        parts.insert(0, f"held-out accuracy {percent(values['accuracy'])}")
    return f"step {event.get('step')}: {', '.join(parts)}"


def _outside(event: Event) -> tuple[str, bool]:
    """A sentence about files that a script wrote where the run does not keep them, or does not share them."""
    first = next(iter(event["paths"]), "")
    more = f" and {several(event['files'] - 1, 'other file')}" if event["files"] > 1 else ""
    wrote = f"{event['node']}: the script wrote {first}{more} ({amount(event['bytes'])})"
    if first.startswith(f"{CACHE}/"):
        return f"{wrote} among the shared downloads, which a fetch does not copy (muster docs clean-up)", True
    if first.startswith(RUNS_IN_CONTAINER.removesuffix("s")):
        return f"{wrote} outside its folder: at a restart, no other host gets it", False
    keep = shlex.quote(first.rpartition("/")[0] or "/")
    return f"{wrote} where nothing is kept: it is lost with the container; `--keep {keep}` keeps it", True


def regroup_words(event: Event, script: bool = False, step: int = 0, apart: Mapping[str, str] | None = None) -> str:
    """A sentence about an event `members`, and the `step` from which they continue; empty if the same nodes train.

    Only a `script` itself knows where it continues. `apart`: the words for lost nodes that are still alive.
    """
    members, before, lost = event["members"], event["before"], lost_in(event)
    left = [name for name in before if name not in (*members, *lost)]
    spares = [name for name in members if name not in before and name in event.get("spares", ())]
    back = [name for name in members if name not in (*before, *spares)]
    if not (lost or left or back or spares):
        return ""
    cut_off = (apart or {}).get(lost[0], "") if len(lost) == 1 else ""
    news = [cut_off or _named(lost, "is lost", "are lost"), _named(left, "has left", "have left")]
    news += [_named(back, "is back", "are back")]
    news += [_named(spares, "takes a free place", "take free places")]
    on = f"{_named(members, 'continues', 'continue')} from step {step}"
    if script:
        on = f"{_named(members, 'starts', 'start')} the script again from what it kept"
    return f"{'; '.join(filter(None, news))}: {on} ({len(members)} of {several(event['planned'], 'node')})"


def lost_in(event: Event) -> list[str]:
    """The lost nodes in an event `members`."""
    return [name for name in event["before"] if name not in (*event["members"], *event.get("left", ()))]


def apart_words(event: Event) -> str:
    """A sentence about an event `apart`."""
    return _named([event["left_out"], *event["others"]], "", "are cut off from each other")


def recovered_sentence(node: NodeState, who: str, trouble: str, since_s: float) -> str:
    """A sentence about a node whose trouble is over; empty if the node has ended: then the story tells its restart."""
    if node.state != "running":
        return ""
    if trouble == "paused":
        return f"{who} is no longer paused, after {in_seconds(since_s)}"
    if trouble == "closed":
        return f"{who} can write into the run's folder again"
    return f"{who} answers again"


def _named(names: Sequence[str], singular: str, plural: str) -> str:
    return subject(names, singular, plural, len(names)) if names else ""
