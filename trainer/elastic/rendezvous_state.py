"""The state of a rendezvous as it lies in the store: JSON, read field by field. torch would unpickle it."""

from __future__ import annotations

import json
import pickle
from datetime import datetime
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousStateError, dynamic_rendezvous

_MOST_BYTES = 1 << 20
_FIELDS = {
    *("round", "complete", "deadline", "closed"),
    *("participants", "wait_list", "redundancy_list", "last_heartbeats"),
}


def known() -> bool:
    """Whether this torch's rendezvous has the state that is written here."""
    try:
        return vars(dynamic_rendezvous._RendezvousState()).keys() == _FIELDS and _node(["a", 1, 2]) is not None
    except (AttributeError, TypeError):
        return False


def written(state: bytes) -> bytes:
    """What goes into the store for the `state` that torch has just pickled in this process."""
    fields = vars(pickle.loads(state))
    return json.dumps({name: _plain(value) for name, value in fields.items()}).encode()


def pickled(stored: bytes) -> bytes:
    """What torch unpickles for what lies in the store.

    Raises RendezvousStateError for anything but the state of a rendezvous: only a stranger writes that.
    """
    try:
        if len(stored) > _MOST_BYTES:
            raise ValueError(f"{len(stored)} bytes")
        state = dynamic_rendezvous._RendezvousState()
        vars(state).update(_fields(_typed(dict, json.loads(stored))))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as fault:
        raise RendezvousStateError(
            "somebody else wrote into the rendezvous of this run: what lies there is no state of one "
            f"({type(fault).__name__}), and was not used"
        ) from fault
    return pickle.dumps(state)


def _plain(value: Any) -> Any:
    """Sets as lists, dictionaries as lists of pairs: nodes are no keys in JSON."""
    if isinstance(value, dynamic_rendezvous._NodeDesc):
        return [value.addr, value.pid, value.local_id]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return [[_plain(key), _plain(held)] for key, held in value.items()]
    return [_plain(one) for one in value] if isinstance(value, set) else value


def _fields(read: dict[str, Any]) -> dict[str, Any]:
    if read.keys() != _FIELDS:
        raise ValueError("other fields")
    return {
        "round": _typed(int, read["round"]),
        "complete": _typed(bool, read["complete"]),
        "deadline": None if read["deadline"] is None else _time(read["deadline"]),
        "closed": _typed(bool, read["closed"]),
        "participants": {_node(node): _typed(int, rank) for node, rank in _typed(list, read["participants"])},
        "wait_list": {_node(node) for node in _typed(list, read["wait_list"])},
        "redundancy_list": {_node(node) for node in _typed(list, read["redundancy_list"])},
        "last_heartbeats": {_node(node): _time(when) for node, when in _typed(list, read["last_heartbeats"])},
    }


def _node(value: Any) -> Any:
    address, process, number = _typed(list, value)
    if not _typed(str, address).isprintable():
        raise ValueError("an address with control characters")
    return dynamic_rendezvous._NodeDesc(address, _typed(int, process), _typed(int, number))


def _time(text: str) -> datetime:
    when = datetime.fromisoformat(_typed(str, text))
    if when.tzinfo is None:
        raise ValueError("a time without its zone")
    return when


def _typed(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} instead of {kind.__name__}")
    return value
