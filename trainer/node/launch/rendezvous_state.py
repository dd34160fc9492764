"""The state of a rendezvous in the store, as JSON that is checked field by field. torch would unpickle it."""

from __future__ import annotations

import json
import pickle
from datetime import datetime
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousStateError, dynamic_rendezvous

from .local_times import LocalTimes

_MOST_BYTES = 1 << 20
_FIELDS = {
    *("round", "complete", "deadline", "closed"),
    *("participants", "wait_list", "redundancy_list", "last_heartbeats"),
}


def is_supported() -> bool:
    """Whether the state of this torch's rendezvous has the fields that this module writes."""
    try:
        return vars(dynamic_rendezvous._RendezvousState()).keys() == _FIELDS and _node(["a", 1, 2]) is not None
    except (AttributeError, TypeError):
        return False


def to_json(pickled: bytes, times: LocalTimes) -> bytes:
    """The JSON for the store, from a state that torch has just pickled in this process."""
    state = pickle.loads(pickled)
    times.write(state)
    return json.dumps({name: _plain(value) for name, value in vars(state).items()}).encode()


def to_pickle(stored: bytes, times: LocalTimes) -> bytes:
    """The pickle that torch expects, from the JSON in the store.

    Raises RendezvousStateError for anything that is not the state of a rendezvous: only a stranger writes that.
    """
    try:
        if len(stored) > _MOST_BYTES:
            raise ValueError(f"{len(stored)} bytes")
        state = dynamic_rendezvous._RendezvousState()
        vars(state).update(_fields(_typed(dict, json.loads(stored))))
        times.read(state)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as fault:
        raise RendezvousStateError(
            "somebody else wrote into the rendezvous of this run: the data there is not the state of a rendezvous "
            f"({type(fault).__name__}), and Muster did not use it"
        ) from fault
    return pickle.dumps(state)


def _plain(value: Any) -> Any:
    """`value` as JSON can hold it: a set becomes a list, a dictionary a list of pairs, since its keys are nodes."""
    if isinstance(value, dynamic_rendezvous._NodeDesc):
        return [value.addr, value.pid, value.local_id]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return [[_plain(key), _plain(item)] for key, item in value.items()]
    return [_plain(item) for item in value] if isinstance(value, set) else value


def _fields(read: dict[str, Any]) -> dict[str, Any]:
    if read.keys() != _FIELDS:
        raise ValueError("unknown fields, or missing ones")
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
