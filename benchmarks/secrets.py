"""Planted secrets, searched for while a run is refused, pushed, installed, started, asked, ended, fetched and removed.

    python -m benchmarks.secrets [--quick]

23 ways in which a secret gets into a project or a command (benchmarks/planted.py), on two hosts of a rack. The search
(benchmarks/searched.py) goes on all the time, on the hosts as root and on this machine. What it finds counts, but not
the variables of processes inside a container: the ranks have the secrets there, and while packages install, that
installation has the passwords of its indexes. Root of a host can read both
(docs/reference/secrets.md). The rival is the same project on one host by hand: `docker build`, `docker run --env-file`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import nodes, planted, racks
from benchmarks.figure import Row, alone, result, say
from benchmarks.planted import Plant
from benchmarks.rivals import by_hand
from benchmarks.searched import INSIDE, Search, wait
from benchmarks.venv import HOME
from deploy.send.image.model import tag_of
from lab import certificate, index

FAB, IMAGE = HOME / ".venv" / "bin" / "fab", "muster-trainer:cpu"
_SHELL = ("FROM_SHELL", "CHANGED", "WANDB_API_KEY", "IN_ARGUMENT")


def measure(quick: bool) -> dict[str, Any]:
    """How many planted secrets are found, ours and by hand."""
    with racks.rack(2, "classic") as rack:
        return on_rack(rack)


def on_rack(rack: racks.Rack) -> dict[str, Any]:
    """The figure on a rack that is up."""
    gateway = rack.on(rack.names[0], "ip route | awk '/^default/ {print $3}'")
    with nodes.scratch() as scratch:
        ours, inside = _ours(rack, gateway, scratch / "ours")
        say(f"secrets: ours: {ours or 'nothing'}")
        theirs = _theirs(rack, gateway, scratch / "hand")
    count = len(planted.WAYS)
    row = Row(f"secrets planted in {count} ways, found anywhere at any moment", f"{len(ours)} of {count}",
              f"docker build, docker run --env-file {len(theirs)} of {count}", "", "0", not ours)  # fmt: skip
    notes = [f"found: {way}: {'; '.join(sorted(places)[:6])}" for way, places in ours.items()]
    notes += [f"by hand: {way}: {'; '.join(sorted(places)[:2])}" for way, places in theirs.items()]
    memory = f"root of a host could read {len(inside)} of them in the memory of processes in containers, by nature"
    return result([row], [*notes, f"{memory}: {', '.join(inside)}"])


def _ours(rack: racks.Rack, gateway: str, scratch: Path) -> tuple[dict[str, set[str]], list[str]]:
    """What is found of our run, by way; and what processes in containers had."""
    plants, run = planted.plants("ours"), f"secrets-{uuid.uuid4().hex[:8]}"
    folder = scratch / "project"
    with _indexes(plants, gateway) as (settings, needs):
        planted.project(folder, plants, needs)
        for name in ("tmp", "cache", "out"):
            (scratch / name).mkdir()
        own = {"XDG_CACHE_HOME": str(scratch / "cache"), "TMPDIR": str(scratch / "tmp"), **_shell(plants), **settings}
        command = _Commands(rack, folder, run, {**os.environ, **own}, scratch / "out")
        watched = [scratch / "cache", scratch / "tmp", scratch / "out", HOME / "runs" / run]
        search = Search(rack.containers.values(), [text for plant in plants.values() for text in plant.traces], watched)
        try:
            search.arguments = False  # the user has typed these
            _refusals(command, plants)
            search.arguments = True
            _whole_life(command)
        finally:
            command.fab("down", "--run", run, "--delete")
            hits = search.end()
            shutil.rmtree(HOME / "runs" / run, ignore_errors=True)
    return _by_way(hits, plants), _ways({text for text, place in hits if INSIDE in place}, plants)


class _Commands:
    """`fab` in the project's folder; what each prints goes to a file that is searched too."""

    def __init__(self, rack: racks.Rack, folder: Path, run: str, environment: Mapping[str, str], out: Path) -> None:
        self.hosts, self.folder, self.run = ",".join(rack.names), folder, run
        self._environment, self._out, self._count = environment, out, 0

    def fab(self, task: str, *words: str, hosts: Sequence[str] | None = None) -> int:
        """The exit code."""
        self._count += 1
        where = ["--hosts", self.hosts] if hosts is None else hosts
        done = subprocess.run(
            [FAB, task, *where, *words], cwd=HOME, env=dict(self._environment), capture_output=True, check=False
        )
        (self._out / f"{self._count:02d}-{task}.log").write_bytes(done.stdout + done.stderr)
        say(f"secrets: fab {task}: {done.returncode}")
        return done.returncode

    def deploy(self, *words: str, script: str = "train.py", hosts: Sequence[str] | None = None) -> int:
        """Deploy with all secrets."""
        beside = self.folder.parent
        secrets = [*("--env-file", f"{self.folder}/.env"), *("--secret", "FROM_SHELL"), *("--secret", "CHANGED")]
        secrets += ["--secret", f"FROM_FILE={self.folder}/token.txt", "--secret", f"HF_TOKEN={beside}/hf-token"]
        secrets += ["--secret-file", f"account.json={beside}/account.json"]
        more = ["--image", IMAGE, "--folder", str(self.folder), "--run", self.run, "--script", script]
        # A git source is asked for: nobody is here to answer.
        return self.fab("deploy", "--allow-folder", *more, *secrets, *words, hosts=hosts)


def _refusals(command: _Commands, plants: Mapping[str, Plant]) -> None:
    """What no run may begin with."""
    cluster = command.folder.parent / "cluster.toml"
    hosts = "".join(f'[[hosts]]\nname = "{name}"\n' for name in command.hosts.split(","))
    cluster.write_text(f'{hosts}[job.environment]\nSERVICE_API_KEY = "{plants["IN_CLUSTER"].value}"\n')
    codes = [
        command.deploy("--env", f"WANDB_API_KEY={plants['WANDB_API_KEY'].value}"),
        command.deploy(script=f"train.py --token {plants['IN_ARGUMENT'].value}"),
        command.deploy(hosts=["--cluster", str(cluster), "--allow-folder"]),
    ]
    if codes != [2, 2, 2]:
        raise RuntimeError(f"these were not refused: {codes}; {command.folder.parent}/out")


def _whole_life(command: _Commands) -> None:
    """A run from its push to its removal, with the commands that people give meanwhile."""
    end = ("--on-end", 'echo "hook $HOOK"', "--rank", "all")
    command.deploy(*end, "--dry-run")
    if command.deploy(*end, "--detach"):
        raise RuntimeError((command.folder.parent / "out").joinpath("05-deploy.log").read_text())
    named = ("--run", command.run)
    command.fab("exec", *named, "--", "env")
    for task in ("status", "why", "logs", "attach"):
        command.fab(task, "--json", *named)
    log = HOME / "runs" / command.run / "logs" / "on-end.log"
    wait(lambda: command.fab("fetch", *named) or log.exists(), 60)
    command.fab("logs", *named)
    command.fab("report", *named, hosts=[])
    command.fab("clean")
    command.fab("down", *named)


@contextmanager
def _indexes(plants: Mapping[str, Plant], gateway: str) -> Iterator[tuple[dict[str, str], str]]:
    """The indexes and the git server that want the planted passwords: the shell's variables, the requirements."""
    with ExitStack() as served:
        plain, mine = (dict([index.wheel(name, "1.0", "VALUE = 1")]) for name in ("plain", "mine"))
        first = served.enter_context(index.serve(gateway, plain, f"me:{plants['INDEX'].value}"))
        second = served.enter_context(index.serve(gateway, mine, f"me:{plants['NEEDS'].value}"))
        repository = _repository(served.enter_context(nodes.scratch()))
        signed = certificate.make(served.enter_context(nodes.scratch()) / "tls.pem")
        source = served.enter_context(index.serve("127.0.0.1", repository, f"me:{plants['SOURCE'].value}", signed))
        git = source.removesuffix("/simple")
        needs = f"--extra-index-url {second}\nplain\nmine\nsourced @ git+{git}/sourced.git\n"
        proxy = f"http://me:{plants['PROXY'].value}@{gateway}:9"
        yield (
            {
                "UV_DEFAULT_INDEX": first,
                "HTTP_PROXY": proxy,
                "NO_PROXY": f"{gateway},127.0.0.1",
                "UV_HTTP_RETRIES": "0",
                "GIT_SSL_CAINFO": str(signed),
            },
            needs,
        )


def _repository(folder: Path) -> dict[str, bytes]:
    """A package in a git repository, as files of the simplest git server."""
    name, data = index.wheel("sourced", "1.0", "VALUE = 1")
    (folder / "pyproject.toml").write_text(index._PROJECT.format(name="sourced", version="1.0"))
    (folder / "backend.py").write_text(
        f"def build_wheel(folder, *_):\n    open(f'{{folder}}/{name}', 'wb').write({data!r})\n    return {name!r}\n"
    )
    git = ["git", "-C", str(folder), "-c", "user.name=me", "-c", "user.email=me@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "begin"], ["update-server-info"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    top = folder / ".git"
    files = (path for path in top.rglob("*") if path.is_file())
    return {f"/sourced.git/{path.relative_to(top)}": path.read_bytes() for path in files}


def _theirs(rack: racks.Rack, gateway: str, scratch: Path) -> dict[str, set[str]]:
    plants, folder, host = planted.plants("hand"), scratch / "project", rack.names[0]
    with _indexes(plants, gateway) as (settings, needs):
        planted.project(folder, plants, needs)
        texts = [text for plant in plants.values() for text in plant.traces]
        ssh = rack.ssh(host)
        search = Search([rack.containers[host]], texts, [])
        build = {"PIP_EXTRA_INDEX_URL": settings["UV_DEFAULT_INDEX"], "HTTP_PROXY": settings["HTTP_PROXY"]}
        given = {name: plants[name].value for name in (*_SHELL, "FROM_FILE", "HF_TOKEN", "IN_CLUSTER")}
        try:
            push = [FAB, "push", "--hosts", host, "--image", IMAGE]
            subprocess.run(push, cwd=HOME, check=True, capture_output=True)
            by_hand.run(ssh, folder, tag_of(IMAGE, None), build, given)
        finally:
            hits = search.end()
            by_hand.clean(ssh)
    say("secrets: by hand")
    return _by_way(hits, plants)


def _shell(plants: Mapping[str, Plant]) -> dict[str, str]:
    names = {"FROM_SHELL": "FROM_SHELL", "CHANGED": "CHANGED", "WANDB_API_KEY": "WANDB_API_KEY",
             "IN_ARGUMENT": "SERVICE_TOKEN"}  # fmt: skip
    return {name: plants[way].value for way, name in names.items()}


def _by_way(hits: set[tuple[str, str]], plants: Mapping[str, Plant]) -> dict[str, set[str]]:
    """The places by way, without what is readable by nature."""
    open_hits = {(text, place) for text, place in hits if INSIDE not in place}
    found: dict[str, set[str]] = {}
    for text, place in open_hits:
        for way in _ways({text}, plants):
            found.setdefault(way, set()).add(place)
    return found


def _ways(texts: set[str], plants: Mapping[str, Plant]) -> list[str]:
    return [plant.way for plant in plants.values() if texts & set(plant.traces)]


if __name__ == "__main__":
    alone(measure, __doc__)
