"""Build wheels from sources. A build runs as another user than this program, which takes only its wheel from it.

A build gets a scratch home, an environment with the tools that it requires and that it cannot change, and no password:
passwords are in the memory of this program and of its tools, which run as root in the container (without root's rights
over files).
"""

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from .tools import FAILED, FROM_BASE, NEED, NO_INDEX, Stop, Work, add_base, end_all_of, normal, read_name, run, tell
from .wheel import Editable, Wheel, digest, remake, same_version

# A JSON object.
Fields = dict[str, Any]
CHILD = ""  # commands.program puts the text of child.py here
# How a build reports which package it lacks: like Python, importlib.metadata or pkg_resources, or in its own words.
_MISSING = re.compile(
    r"No module named '([A-Za-z0-9_]+)|No package metadata was found for ([\w.-]+)|"
    r"The '([\w.-]+)\b[^']{0,200}' distribution was not found|\b(?:[Pp]y)?([Tt]orch)\b"
)
_LOGIN, _KEY, _OWN = (
    re.compile(r"://[^/\s]*@"),
    re.compile("[0-9a-f]{64}"),
    re.compile(r"(UV|PIP)_.*|.*(USERNAME|PASSWORD)"),
)
_MOST_ASKED, _MOST_ANSWER = 200, 1 << 20


class Building(Work):
    """The order `build`."""

    def __init__(self, order: Fields, scratch: Path, image: dict[str, str]) -> None:
        super().__init__(order, scratch)
        cache = scratch / "cache"
        cache.mkdir(mode=0o700)  # of an index with a password, a build sees only what it asked for
        os.environ["UV_CACHE_DIR"] = str(cache)
        self.image = image
        self.owner = tuple(order["owner"]) if order["owner"] and os.getuid() == 0 else None
        # Whether earlier builds have left nothing that a later build could find.
        self.clean = True

    def build(self) -> Fields:
        """Build each source, or take the wheel that was kept for it."""
        return {"built": [self._wheel_of(source) for source in self.order["sources"]]}

    def _wheel_of(self, source: Fields) -> Fields:
        who = str(source.get("name") or source.get("path") or source["key"])[:200]
        home = Path(tempfile.mkdtemp(prefix="build-", dir=self.scratch))
        try:
            archive = self._archive(source)
            keep_as = self._kept_name(source, digest(archive)) if archive else ""
            if not (wheel := self._kept_wheel(keep_as)):
                ready = self._prepared(source, archive, home)
                keep_as = keep_as or self._kept_name(source, ready["digest"])
                wheel = self._kept_wheel(keep_as)
            if wheel:
                return {"key": source["key"], **wheel._asdict(), "kept": True}
            tell(say=f"building {who}")
            wheel = self._built(source, ready, home, who[:60])
            if keep_as and self.clean:
                (self.built / wheel.sha256 / f"{keep_as}.json").write_text(json.dumps(wheel._asdict()))
        except Stop as fault:
            raise Stop(fault.code, f"{who}: {fault.words}") from fault
        finally:
            self._wipe(home)
        return {"key": source["key"], **wheel._asdict(), "kept": False}

    def _archive(self, source: Fields) -> Path | None:
        """The file of a source that came with the order."""
        archive = self.scratch / source["tar"] if source.get("tar") else None
        pins = re.findall(r"--hash=sha256:([0-9a-f]{64})", source.get("line", ""))
        if archive and pins and digest(archive) not in pins:
            raise Stop(FAILED, "its source does not have the hash in the lock")
        return archive

    def _kept_name(self, source: Fields, content: str) -> str:
        """The name under which a wheel is kept, from the control side's key, the source and the build's settings.

        It is empty if an earlier build left something behind, because that could change the wheel too.
        """
        key = self.order.get("keep", {}).get(source["key"], "")
        if not _KEY.fullmatch(key) or not _KEY.fullmatch(content) or not self.clean:
            return ""
        names = ("kind", "line", "path", "subdirectory", "editable", "name", "version")
        settings = {name: _LOGIN.sub("://", value) for name, value in self.order["variables"].items()}
        decides = [
            {name: source.get(name) for name in names},
            {name: value for name, value in settings.items() if not name.endswith(("USERNAME", "PASSWORD"))},
            sorted((path.name, digest(path)) for path in self.wheels.iterdir()),
            [self.order["uv"], sys.version],
        ]
        return hashlib.sha256(json.dumps([1, key, content, decides], sort_keys=True).encode()).hexdigest()

    def _kept_wheel(self, name: str) -> Wheel | None:
        """The wheel kept under that name, copied to the built ones, or None. Only install.py keeps wheels."""
        place = self.tools / "kept" / name
        try:
            wheel = Wheel(**json.loads((place / "wheel.json").read_text())) if name else None
            if not wheel or "/" in wheel.wheel or digest(place / wheel.wheel) != wheel.sha256:
                return None
            (self.built / wheel.sha256).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(place / wheel.wheel, self.built / wheel.sha256 / wheel.wheel)
        except (OSError, ValueError, TypeError):
            return None
        return wheel

    def _prepared(self, source: Fields, archive: Path | None, home: Path) -> Fields:
        """Copy the source into the build's home; return where it is, and what it declares about its build."""
        if self.owner:
            home.chmod(0o755)  # this program must find the wheel there
            os.chown(home, *self.owner)
        task = {
            "do": "prepare", "archive": str(archive or ""), "source": self.order["source"],
            "path": "" if archive else source.get("path", ""), "subdirectory": source.get("subdirectory", ""),
        }  # fmt: skip
        return self._child(task, home, [sys.executable, "-I"])

    def _built(self, source: Fields, ready: Fields, home: Path, who: str) -> Wheel:
        """Build one source, isolated; or with the base's packages, if it needs one of them without declaring it."""
        needs = self._needs(ready["requires"])
        beside = any(_of_base(need, self.base) for need in needs)
        while True:
            try:
                file = self._wheel(ready, needs, home, beside)
                break
            except Stop as fault:
                lacking = ["".join(groups) for groups in _MISSING.findall(fault.words)]
                if beside or not any(_imports(name, self.base) for name in lacking):
                    raise
                beside = True
                tell(say=f"{who}: it needs {lacking[-1][:60]}, and does not say so: it is built beside the base's")
        editable = None
        if source.get("editable"):
            inside = os.path.normpath(source["path"])
            editable = Editable(Path(self.order["source"]) / inside, inside)
        wheel = remake(file, self.built, editable)
        name, version = _expected(source)
        if (name and normal(wheel.name) != name) or (version and not same_version(wheel.version, version)):
            shutil.rmtree(self.built / wheel.sha256)
            raise Stop(
                FAILED, f"its build made {wheel.name[:100]} {wheel.version[:100]}, and not {name} {version}".rstrip()
            )
        return wheel

    def _wheel(self, ready: Fields, needs: list[str], home: Path, beside: bool) -> Path:
        """Let the backend make a wheel, and return its path. What the backend's hook requires is installed first."""
        hook = {"do": "requires", **{name: ready[name] for name in ("folder", "backend", "path")}}
        python = self._environment(needs, beside)
        more = self._needs(self._child(hook, home, python).get("requires"))
        if new := [need for need in more if need not in needs]:
            python = self._environment([*needs, *new], beside)
        answer = self._child({**hook, "do": "wheel"}, home, python)
        return home / "out" / os.path.basename(str(answer.get("wheel", "")))

    def _environment(self, needs: list[str], beside: bool) -> list[str]:
        """Make an environment with these requirements; return its Python. None of their code runs before the build."""
        place = Path(tempfile.mkdtemp(prefix="env-", dir=self.scratch))
        place.chmod(0o755)
        python, packages = self.make_environment(place)
        asked = [need for need in needs if not (beside and _of_base(need, self.base))]
        if asked:
            listed = self.scratch / "needs.txt"
            listed.write_text("\n".join(asked) + "\n")
            options = ["--only-binary", ":all:", "--link-mode", "copy", "--find-links", str(self.wheels)]
            try:
                run(
                    [self.uv, "pip", "install", "--quiet", *options, "--python", python, "--requirement", str(listed)],
                    self.scratch,
                )
            except Stop as fault:
                if fault.code != NO_INDEX or not all(read_name(need) in self.base for need in asked):
                    raise Stop(fault.code, f"what its build needs cannot be installed: {fault.words}") from fault
                tell(say="no index can be reached: the build uses what the base has")
                beside = True
        if beside:
            add_base(packages)
        return [python, "-P"]

    def _needs(self, asked: Any) -> list[str]:
        if not isinstance(asked, list) or len(asked) > _MOST_ASKED:
            raise Stop(FAILED, f"its build does not ask for a list of at most {_MOST_ASKED} requirements")
        needs = [str(need).strip() for need in asked]
        for need in needs:
            if len(need) > 1000 or not NEED.fullmatch(need):
                raise Stop(
                    FAILED, f"its build asks for {need[:200]!r}: give names and versions that an index has as wheels"
                )
        return needs

    def _child(self, task: Fields, home: Path, python: list[str]) -> Fields:
        """Let child.py do a task as the build's user; return its answer, which the caller must not trust."""
        answer = home / f"answer-{os.urandom(8).hex()}"
        words = [*python, "-c", CHILD, json.dumps({**task, "home": str(home), "answer": str(answer)})]
        try:
            # The output of a build is shown only if the build fails, and then only its end.
            run(words, Path("/"), shown=False, owner=self.owner, environment=self._variables(home, python[0]))
        except Stop as fault:
            last = (fault.words.splitlines() or [""])[-1].strip()
            raise Stop(fault.code, f"its build failed: {last[:300]}\n{fault.words}") from fault
        try:
            with open(os.open(answer, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                read = json.loads(file.read(_MOST_ANSWER))
        except (OSError, ValueError, RecursionError) as fault:
            raise Stop(FAILED, "its build ended without an answer") from fault
        if not isinstance(read, dict):
            raise Stop(FAILED, "its build ended without an answer")
        if task["do"] == "prepare" and not _is_ready(read):
            raise Stop(FAILED, "the [build-system] of its pyproject.toml cannot be read")
        return read

    def _variables(self, home: Path, python: str) -> dict[str, str]:
        """A build's variables: the image's (or the shell's) and the user's settings, none with a password."""
        every = {**self.image, **self.order["variables"]}
        public = {name: value for name, value in every.items() if not _OWN.fullmatch(name) and not _LOGIN.search(value)}
        paths = {name: str(self.scratch / path) for name, path in self.order["paths"].items()}
        folder = str(Path(python).parent)
        own = {"HOME": str(home), "TMPDIR": str(home), "PATH": f"{folder}:{self.image.get('PATH', os.defpath)}"}
        return {
            **public,
            **paths,
            **own,
            "PYTHONDONTWRITEBYTECODE": "1",
            "VIRTUAL_ENV": str(Path(folder).parent),
        }

    def _wipe(self, home: Path) -> None:
        """Remove everything that a build left where the next one could find it."""
        if not self.owner or home.stat().st_uid != self.owner[0]:
            return shutil.rmtree(home, ignore_errors=True)
        places = [place for place in ("/tmp", "/dev/shm", "/dev/mqueue", str(home)) if os.path.isdir(place)]
        task = {"do": "wipe", "places": places, "answer": "/dev/null"}
        try:
            run(
                [sys.executable, "-I", "-c", CHILD, json.dumps(task)],
                Path("/"),
                shown=False,
                owner=self.owner,
                environment=self.image,
            )
        except (Stop, OSError):
            self.clean = False
        ended = end_all_of(self.owner[0])
        try:
            left = [
                name
                for name in places
                for path in Path(name).iterdir()
                if path.lstat().st_uid == self.owner[0] and path != home
            ]
            self.clean = self.clean and ended and not left
        except OSError:
            self.clean = False


def _expected(source: Fields) -> tuple[str, str]:
    """The name and version that a source's wheel must have; empty: any."""
    name, version = str(source.get("name") or ""), str(source.get("version") or "")
    if pinned := re.match(r"([\w.-]+)(?:\[[^\]]*\])?==([^\s;]+)", source.get("line", "")):
        name, version = pinned[1], pinned[2]
    elif source.get("line"):
        name = name or read_name(source["line"])
    return normal(name) if name else "", version


def _of_base(need: str, base: Any) -> bool:
    """Whether a build needs the base's torch or a package that comes with it: another one would not fit any rank."""
    return bool(FROM_BASE.fullmatch(read_name(need))) and read_name(need) in base


def _imports(module: str, base: Any) -> bool:
    """Whether a package in the base provides that module."""
    if normal(module) in base:
        return True
    return any(module in (entry.read_text("top_level.txt") or "").split() for entry in base.values())


def _is_ready(read: Fields) -> bool:
    return (
        all(isinstance(read.get(name), str) and len(read[name]) < 4000 for name in ("folder", "backend", "digest"))
        and isinstance(read.get("path"), list)
        and all(isinstance(path, str) for path in read["path"])
    )
