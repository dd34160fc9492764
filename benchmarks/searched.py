"""Search for planted texts while something runs: on the hosts as root, and on this machine as its user.

On a host: arguments of all processes, variables of the host's own processes, new files (images' layers, volumes and
containers' logs too), what the engine says of containers, images and volumes. On this machine: arguments, and files.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

# What is searched for is in a file: its words would stand on this search's own command line.
_HOST = r"""
cd /root && mine=$(readlink /proc/1/ns/mnt)
PATTERNS=/root/planted PLACES="/home /tmp /var /run /etc /dev/shm /opt /srv /var/lib/docker"
seen() { grep -oaF -f $PATTERNS | sort -u | sed "s|^|$1\t|" >>hits; }
look() {
    touch next
    find $PLACES -xdev -type f -cnewer stamp ! -name metrics.csv -print0 2>/dev/null |
        xargs -0 -r grep -oaF -f $PATTERNS /dev/null 2>/dev/null |
        sort -u | sed -E 's|^([^:]*):|a file: \1\t|' >>hits
    mv next stamp
    docker ps -aq | xargs -r docker inspect 2>/dev/null | seen "docker inspect of a container"
    docker image ls -q | sort -u | xargs -r docker inspect 2>/dev/null | seen "docker inspect of an image"
    docker image ls --format '{{.Repository}}:{{.Tag}}' | xargs -r -n 1 docker history --no-trunc 2>/dev/null |
        seen "docker history"
    docker volume ls -q | xargs -r docker volume inspect 2>/dev/null | seen "docker volume inspect"
    for each in $(docker ps -aq); do docker logs "$each" 2>&1 | seen "docker logs"; done
    for each in /proc/[0-9]*; do
        place=inside
        [ "$(readlink $each/ns/mnt)" != "$mine" ] || place="variables of a process of the host"
        tr '\0' '\n' <$each/environ | seen "$place"
    done 2>/dev/null
}
: >hits
while [ -e watch ]; do
    for each in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | seen "arguments of a process"
        sleep 0.03
    done
    look
done
look
"""
INSIDE = "inside"  # a container's memory, which root of the host can read by nature
DECOY = "decoy-of-the-search"


class Search:
    """A search that goes on until `end`. `containers`: the hosts, as this machine's engine calls them."""

    def __init__(self, containers: Iterable[str], texts: Sequence[str], folders: Sequence[Path]) -> None:
        self._containers, self._texts, self._folders = list(containers), [*texts, DECOY], folders
        self.hits: set[tuple[str, str]] = set()
        self.arguments = True
        self._over, self._stamps = threading.Event(), dict[Path, tuple[int, int]]()
        self._hosts = []
        for name in self._containers:
            line = ["docker", "exec", "-i", name, "sh", "-c", "cd /root && touch stamp watch && cat >planted"]
            subprocess.run(line, input="\n".join(self._texts), text=True, check=True)
            self._hosts.append(subprocess.Popen(["docker", "exec", name, "sh", "-c", _HOST]))
        self._here = threading.Thread(target=self._search_here, daemon=True)
        self._here.start()

    def end(self) -> set[tuple[str, str]]:
        """What was found, as pairs of text and place. Raises RuntimeError if a planted decoy was not."""
        for name in self._containers:
            subprocess.run(["docker", "exec", name, "sh", "-c", f"sleep 3; : {DECOY}"], check=True)
            subprocess.run(["docker", "exec", name, "rm", "/root/watch"], check=True)
        self._over.set()
        self._here.join(60)
        for name, looking in zip(self._containers, self._hosts, strict=True):
            looking.wait(120)
            line = ["docker", "exec", name, "cat", "/root/hits"]
            shown = subprocess.run(line, check=True, capture_output=True, text=True, errors="replace").stdout
            found = {(text, f"host: {place}") for place, _, text in (row.partition("\t") for row in shown.splitlines())}
            if DECOY not in {text for text, _ in found}:
                raise RuntimeError(f"{name}: the search does not see a command line")
            self.hits |= {(text, place) for text, place in found if text != DECOY}
        return self.hits

    def _search_here(self) -> None:
        texts = [text.encode() for text in self._texts[:-1]]
        while not self._over.wait(0.05):
            if self.arguments:
                for path in Path("/proc").glob("[0-9]*/cmdline"):
                    with suppress(OSError):
                        self._note(path.read_bytes(), texts, "here: arguments of a process")
            self._look_at_files(texts)
        self._look_at_files(texts)

    def _look_at_files(self, texts: Sequence[bytes]) -> None:
        for top in self._folders:
            for place, _, names in os.walk(top):
                for name in names:
                    path = Path(place, name)
                    with suppress(OSError):
                        status = path.lstat()
                        stamp = (status.st_size, status.st_mtime_ns)
                        if name != "metrics.csv" and self._stamps.get(path) != stamp and not path.is_symlink():
                            self._stamps[path] = stamp
                            self._note(path.read_bytes(), texts, f"here: {path}")

    def _note(self, content: bytes, texts: Sequence[bytes], place: str) -> None:
        self.hits |= {(text.decode(), place) for text in texts if text in content}


def wait(condition: object, seconds: float = 120.0) -> None:
    """Wait until a callable is true. Raises TimeoutError."""
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > until:
            raise TimeoutError(f"waited {seconds:.0f} s")
        time.sleep(0.2)
