"""Before each attempt, nodes exchange the script's files that only some of them have; missing_files.py decides which.

A restart may happen while the user's machine is off. The first node collects each node's list of files, tells each node
what to get from which node, and announces when all have their files; the files go directly from node to node. Each
connection begins with a proof, in both directions, of the key that the nodes of a start share. Standard library only.
"""

from __future__ import annotations

import os
import queue
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from muster.errors import TrainError

from ...run_dir import RankFolder
from .. import variables
from ..membership import meeting
from ..membership.link import Link, LinkLost
from . import missing_files, work
from .missing_files import Entry, Listing

# The key of a start; the control side gives it to the nodes of a script that may be restarted.
KEY = "MUSTER_SHARE_KEY"
_JOIN_SECONDS, _LOOK_SECONDS = 60.0, 0.1
_PIECE = 1 << 20
# The last name in an archive; it is added only if no file was written while it was sent.
WHOLE = "whole"
# The nodes of a run connect all together; this limit keeps strangers from filling an agent with threads.
_MOST_AT_ONCE = 256


class Sharing:
    """What this node exchanges with the others. It is built once; `attempt` is called before each attempt of the ranks.

    `file`: the number in the name of its first rank's event file, if it is not the rank (min_nodes.py).
    """

    def __init__(self, key: str, run_folder: Path, node: str, ranks: int, file: int | None = None) -> None:
        self._key, self._folder, self._node, self._ranks, self._file = key, run_folder, node, ranks, file
        # Since the last exchange: whether others may have continued without this node, and which nodes have been lost.
        self.stale, self._lost = False, set[str]()

    def attempt(
        self,
        epoch: Mapping[str, Any],
        address: str,
        meet: Callable[[str], str],
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Bring all nodes of an epoch the files that they do not have.

        `meet`: receives where this node listens, and returns where the first node listens. `over`: whether other nodes
        take part by now. Raises LinkLost in that case, or if a node went away: the nodes must meet again. Raises
        TrainError if a node cannot store its files.
        """
        place, nodes = epoch["place"], epoch["nodes"]
        self._first_rank = place * self._ranks
        self.stale = self.stale or not epoch["stayed"]
        self._lost |= {*epoch["lost"]}
        alone, opened = work.locked(self._folder), closing(FileServer(address, self._key, self._folder))
        with opened as server, alone, _Ending(over) as self._ending:
            where = meet(server.where)
            try:
                if place == 0:
                    self._lead(server, nodes)
                else:
                    self._follow(server, place, where)
            except (LookupError, ValueError, TypeError, AttributeError) as fault:
                raise LinkLost(f"a node sent an odd answer: {fault}") from fault
        self.stale, self._lost = False, set()

    def _lead(self, server: FileServer, nodes: int) -> None:
        with ExitStack() as stack:
            links: dict[int, Link] = {}
            end = time.monotonic() + _JOIN_SECONDS
            while len(links) < nodes - 1:
                place, link = server.join(end, self._ending)
                stack.callback(link.close)
                links[place] = self._ending.holds(link)
            # All lists are read in parallel: a node whose long list is not read would seem to be gone.
            with ThreadPoolExecutor(max(1, len(links))) as pool:
                lists = pool.map(lambda place: (place, links[place].receive()), links)
                about = {0: self._about(server), **dict(lists)}
            orders = _orders(about, self._lost)
            for place, link in links.items():
                link.send(orders[place])
            faults = [self._fetch(orders[0]), *(str(link.receive()["fault"]) for link in links.values())]
            fault = next(filter(None, faults), "")
            for link in links.values():
                link.send({"fault": fault})
        _raise(fault)

    def _follow(self, server: FileServer, place: int, first: str) -> None:
        with self._ending.holds(Link.to(first, self._key)) as link:
            link.patience(None)
            link.send({"place": place})
            link.send(self._about(server))
            link.send({"fault": self._fetch(link.receive())})
            fault = str(link.receive()["fault"])
        _raise(fault)

    def _about(self, server: FileServer) -> dict[str, Any]:
        """This node's files. A list of too many files is left out: then no node receives or sends any."""
        here = work.listing(self._folder)
        about = {"node": self._node, "where": server.where, "stale": self.stale}
        if len(here.files) + len(here.links) > work.MOST_LISTED:
            print(
                f"muster: {self._node} has more than {work.MOST_LISTED:,} files: before this attempt the hosts do not "
                "share what the script wrote",
                file=sys.stderr,
            )
            return {**about, "files": None, "links": []}
        server.files = here.files
        return {**about, "files": here.files, "links": here.links}

    def _fetch(self, order: Mapping[str, Any]) -> str:
        """Get the files of an order; returns why they cannot be stored, or an empty text."""
        try:
            for path in work.set_aside(self._folder, order["torn"]):
                names = " and ".join(order["lost"])
                print(
                    f"muster: {path} lacks the part that {names} had: it is set aside now", file=sys.stderr, flush=True
                )
        except OSError as fault:
            return f"{self._node} cannot set {order['torn']} aside: {fault.strerror or fault}"
        for node, where, files in order["get"]:
            with suppress(OSError):
                rank = RankFolder(self._folder, self._first_rank, self._node, self._file)
                rank.event("shared", source=str(node), files=len(files), bytes=sum(files.values()))
            with self._ending.holds(Link.to(where, self._key)) as link:
                try:
                    receive(link, node, files, self._folder, order["old"])
                except OSError as fault:
                    return f"{self._node} cannot copy the files of {node}: {fault.strerror or fault}"
                except (tarfile.TarError, EOFError) as fault:
                    raise LinkLost(f"{node} sent no whole file: {fault}") from fault
        return ""


def receive(link: Link, node: str, files: Mapping[str, int], folder: Path, old: Collection[str] = ()) -> Sequence[str]:
    """Get these files of a node, each with its size, into a folder; returns the path of each, empty if rejected.

    `old`: the files in the folder that are replaced. Raises LinkLost if a file is missing or was written meanwhile,
    also TarError, EOFError and OSError.
    """
    link.send({"get": list(files)})
    with tarfile.open(fileobj=link, mode="r|", bufsize=_PIECE) as tar:  # type: ignore[call-overload]
        came = [*work.unpack(tar, folder, node, files, old)]
        if len(came) < len(files) or tar.getnames()[-1:] != [WHOLE]:
            raise LinkLost(f"one of {len(files)} files of {node} is missing, or was written in the meantime")
    return came


def take_sharing(environment: MutableMapping[str, str]) -> Sharing | None:
    """Create this node's exchange from its variables; None if it was not asked for. The ranks do not get the key."""
    key, folder = environment.pop(KEY, ""), environment.get("MUSTER_RUN_DIR")
    if not key or not folder:
        return None
    file = environment.get(variables.FIRST_FILE)
    node = environment.get("MUSTER_NODE", "")
    return Sharing(key, Path(folder), node, variables.ranks(environment), int(file) if file else None)


def _orders(about: Mapping[int, Mapping[str, Any]], lost: Collection[str] = ()) -> dict[int, dict[str, Any]]:
    """For each node, which files it gets from which nodes.

    The nodes begin with different sources, to spread the load.
    """
    nodes, orders = [about[place] for place in sorted(about)], {}
    listings = {
        str(node["node"]): Listing(
            {str(path): Entry(*entry) for path, entry in (node["files"] or {}).items()}, node["links"]
        )
        for node in nodes
    }
    torn = missing_files.find_torn(listings, lost)
    listings = missing_files.without_folders(listings, torn)
    old = missing_files.find_outdated(listings, [str(node["node"]) for node in nodes if node.get("stale") is True])
    listings = missing_files.with_outdated(listings, old)
    pairs = {} if any(node["files"] is None for node in nodes) else missing_files.find_missing(listings)
    for place, node in enumerate(nodes):
        get = []
        for source in (*nodes[place + 1 :], *nodes[:place]):
            if paths := pairs.get((source["node"], node["node"])):
                sizes = {path: listings[source["node"]].files[path].size for path in paths}
                get.append([source["node"], source["where"], sizes])
        orders[place] = {"get": get, "old": old.get(node["node"], []), "torn": torn, "lost": sorted(lost)}
    return orders


def _raise(fault: str) -> None:
    if fault:
        raise TrainError(
            f"the hosts could not share the script's files before its next attempt: {fault}",
            "free some disk space there; or mount a folder that the hosts share",
        )


class _Ending:
    """Ends its connections when other nodes take part, so that none of them waits for a node that is gone."""

    def __init__(self, over: Callable[[], bool]) -> None:
        self._over, self._closed, self.ended = over, threading.Event(), False
        self._links = list[Link]()

    def __enter__(self) -> _Ending:
        threading.Thread(target=self._watch, daemon=True, name="muster-share").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def holds(self, link: Link) -> Link:
        """Add a link, which is ended together with the others."""
        self._links.append(link)
        if self.ended:
            link.end()
        return link

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            if self._over():
                self.ended = True
                for link in list(self._links):
                    link.end()
                return


class FileServer:
    """This node's listening socket: on the first node others join here; on any node they get its `files`.

    Raises LinkLost.
    """

    def __init__(self, address: str, key: str, run_folder: Path) -> None:
        try:
            self._listening = meeting.listen(address, 0)
        except OSError as fault:
            raise LinkLost(f"cannot listen on {address}: {fault.strerror}") from fault
        self.where = f"{address} {self._listening.getsockname()[1]}"
        self.files: Mapping[str, Entry] = {}
        self._key, self._folder = key, run_folder
        self._joined: queue.Queue[tuple[int, Link]] = queue.Queue()
        accept = partial(meeting.accept, self._listening, _MOST_AT_ONCE, self._answer)
        threading.Thread(target=accept, daemon=True, name="muster-share").start()

    def close(self) -> None:
        """Stop listening."""
        meeting.close(self._listening)

    def join(self, end: float, ending: _Ending) -> tuple[int, Link]:
        """The next node that joins, by its place. Raises LinkLost after `end`, or if other nodes take part by now."""
        while time.monotonic() < end and not ending.ended:
            with suppress(queue.Empty):
                return self._joined.get(timeout=_LOOK_SECONDS)
        raise LinkLost("a node did not join to share its files")

    def _answer(self, connection: Any) -> None:
        # A caller that does not prove the key, or requests an unlisted file, gets nothing, not even an answer.
        with suppress(LinkLost, OSError, LookupError, ValueError, TypeError, tarfile.TarError):
            link = Link(connection, self._key, opens=False)
            asked = link.receive()
            if "place" in asked:
                link.patience(None)
                self._joined.put((int(asked["place"]), link))
                return
            with link:
                if "list" in asked:
                    link.send({"files": self.files})
                    return
                self._give(link, [path for path in asked["get"] if path in self.files])

    def _give(self, link: Link, paths: Sequence[str]) -> None:
        with tarfile.open(fileobj=link, mode="w|", format=tarfile.GNU_FORMAT, bufsize=_PIECE) as tar:  # type: ignore[call-overload]
            for path in paths:
                with open(os.open(self._folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                    about = tarfile.TarInfo(path)
                    status = os.fstat(file.fileno())
                    about.size, about.mtime = status.st_size, int(status.st_mtime)
                    tar.addfile(about, file)
                    if os.fstat(file.fileno()).st_mtime_ns != status.st_mtime_ns:
                        return  # the file was written meanwhile: the archive ends without WHOLE
            tar.addfile(tarfile.TarInfo(WHOLE))
