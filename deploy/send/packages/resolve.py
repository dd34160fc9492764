"""Resolve requirements on this machine, for the hosts' Python and packages (base.py), into a lock with hashes.

uv does it, in a scratch folder with copies of the files that matter, and starts no program (uv.py). What only a build
can tell comes from builds on all hosts, through `build`. The hashes in the lock are the index's own, within the user's
pins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from ...core import plain_file
from ...core.errors import DeployError, UsageError
from ...job.options import FLAG
from ..image import official
from . import addresses, offers, project_file, store
from .base import Base
from .from_source import sources, stubs
from .from_source.archives import Wheel, file_of, is_wheel
from .inside.tools import FROM_BASE, comes_with_torch, normal, read_name
from .requirements import Requirements, asked_in
from .settings import without_logins
from .store import LINE, Lock, Source
from .uv import Failed, Uv

Build = Callable[[Sequence[Source]], list[Source]]
_UNBUILT = re.compile(r"Failed to (?:download and )?build `([^`]{1,3000})`")
# uv's words for a package that the index does not have, or not in that version.
_UNKNOWN = re.compile(r"(?:Because|only|of|and) ([\w.-]+)(?: was not found in |==\S+ and |[<=]\S+ is avail| are avail)")
WITHOUT = f"or leave the packages out: {FLAG.requirements} no"
_MOST_BUILDS = 100
# Lines that uv ignores, with a warning: Muster does what they ask, or does it always.
_HANDLED_OPTIONS = re.compile(r"^--(?:pre|prefer-binary|require-hashes)$", re.MULTILINE)
# Requirements of this kind contain torch itself, for a base without torch; what a lock then states as the base's torch.
TORCH, BESIDE_NONE = "torch", "none"
# What helps if a project needs another torch than the run has. On this machine, the containers' image has one torch; a
# user with another environment active can run its torch as processes.
HERE = f"here: {FLAG.backend} processes in an environment"
OTHER_TORCH = f"{HERE} that has {{}}; on hosts: {FLAG.image} pytorch/pytorch:{{}}, or another that has it"
# torch's sisters have code compiled for one build of torch; a base may lack them.
SISTERS = ("torchvision", "torchaudio")
# Limits of a file in which uv wrote an index's answers: bytes and lines. Twenty packages have 60 kB and 700 lines.
_MOST_WRITTEN, _MOST_LINES = 8 << 20, 200_000


@dataclass(frozen=True)
class Question:
    """What to resolve."""

    needs: Requirements
    base: Base
    local: Sequence[Source]  # the folder's own sources
    far: Mapping[str, Source]  # fetched sources, by address
    wheels: Mapping[str, Wheel]  # wheels of the folder, by path, and fetched wheels, by address
    build: Build  # asks builds on all hosts to describe sources
    of_index: bool = False  # the base's packages are in this index too, which tells what they need


class OtherTorch(Failed):
    """Raised if the index has a sister of torch only for another build of torch than the base's."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.hint = OTHER_TORCH.format("them and their torch", official.USUAL.tag)


class Resolving:
    """One resolution. `scratch`: its own folder, in which `uv` works."""

    def __init__(self, asked: Question, uv: Uv, scratch: Path) -> None:
        self._asked, self._uv, self._scratch, self._base = asked, uv, scratch, asked.base
        self._source, self._stubs, self._made = (scratch / name for name in ("source", "stubs", "made"))
        for folder in (self._source, self._stubs, self._made):
            folder.mkdir()
        if asked.needs.kind != TORCH and not asked.of_index:
            stubs.of_base(self._stubs, asked.base)
        kinds = (".txt", ".in", ".py", ".toml", "uv.lock")
        read = [(path, content) for path, content in asked.needs.files if path.endswith(kinds)]
        self._texts = {path: content.decode(errors="replace") for path, content in read}
        self._far = dict[str, Path]()
        # A uv.lock was already made within these limits.
        path, is_project = asked.needs.path, asked.needs.path.endswith(".toml")
        self._limits, self._instead = project_file.limits_of(self._texts[path], path) if is_project else ([], [])

    @cached_property
    def _of_base(self) -> Mapping[str, str]:
        """The versions of what only the base provides; empty if torch itself is to be installed."""
        return {} if self._asked.needs.kind == TORCH else self._base.torch

    def _version(self, text: str) -> str:
        """The version of a package in the base, as uv sees it."""
        return text if self._asked.of_index else stubs.version(text)

    def lock(self) -> Lock:
        """Resolve, and return the lock. Raises Failed with uv's words, or UsageError."""
        asked = self._asked
        if not (asked.local or asked.far or asked.wheels or asked.of_index) and self._has_all():
            return Lock((), torch=self._of_base["torch"])
        own = self._known([*asked.local, *asked.far.values()])
        wanted = self._wanted(own)
        built = dict[str, Source]()
        while True:
            try:
                lines = self._compiled(wanted, "--generate-hashes")
                break
            except Failed as fault:
                match = _UNBUILT.search(fault.words)
                if not match or match[1] in built or len(built) == _MOST_BUILDS:
                    raise self._explained(fault.words) from fault
                (built[match[1]],) = asked.build([self._of_index(match[1])])
                source = built[match[1]]
                stubs.write(self._stubs, source.name, source.version, self._known_needs(source), source.extras)
        return self._chosen(lines, own, list(built.values()))

    def _known(self, own: list[Source]) -> list[Source]:
        """These sources, each with what it needs. If one does not tell, all hosts build all of them together."""
        return self._asked.build(own) if any(not source.name for source in own) else own

    def _wanted(self, own: Sequence[Source]) -> Path:
        """The file that uv resolves: the user's file, or one made for its project, with stubs for the sources `own`."""
        asked = self._asked.needs
        local, places = self._local(own), self._places(own)
        rows = [f"{name} @ {place.as_uri()}" for name, place in places.items()]
        self._limits += rows  # as overrides, they would remove the extras that a line requests
        self._instead = [need for need in self._instead if read_name(need) not in map(normal, places)]
        (self._scratch / "overrides.txt").write_text("\n".join(self._instead))
        if asked.kind != "uv.lock":
            sources.refuse_elsewhere(own, list(places))
        wanted = self._scratch / "asked.txt"
        if asked.kind == "uv.lock":
            text = self._exported(asked.path)
            wanted.write_text(sources.with_stubs(text, asked.path, local, self._far))
            return wanted
        if asked.kind == "project":
            wanted.write_text(f"{rows[0]}\n")
            return wanted
        return self._written_anew(local)

    def _local(self, own: Sequence[Source]) -> dict[str, Path]:
        """Make stubs for sources and wheels. Returns those in the folder by path; `_far` gets the others by address."""
        asked = self._asked
        made = {source.key: self._stub(source) for source in own}
        local = {source.place: made[source.key] for source in own if source.kind == "folder"}
        self._far |= {word: made[source.key] for word, source in asked.far.items()}
        for word, wheel in asked.wheels.items():
            (self._far if addresses.is_web(word) else local)[word] = self._stub_of(wheel)
        for source in own:  # a source may need another one of these
            needs = self._known_needs(source)
            stubs.write(self._made / source.key, source.name, source.version, needs, source.extras)
        for word, wheel in asked.wheels.items():
            needs = [sources.known_need(need, self._far, without_logins(word)) for need in wheel.requires]
            stubs.of_wheel(self._made / wheel.sha256, wheel, needs)
        return local

    def _places(self, own: Sequence[Source]) -> dict[str, Path]:
        """The stubs by name: they replace a package everywhere, also where another package needs it.

        If several wheels have one name (for several Pythons), none is included: the lines tell which is meant.
        """
        wheels = self._asked.wheels.values()
        count = Counter(normal(wheel.name) for wheel in wheels)
        places = {source.name: self._stub(source) for source in own}
        return places | {wheel.name: self._stub_of(wheel) for wheel in wheels if count[normal(wheel.name)] == 1}

    def _stub_of(self, wheel: Wheel) -> Path:
        folder = self._made / wheel.sha256
        folder.mkdir(exist_ok=True)
        return folder / wheel.file

    def _written_anew(self, local: Mapping[str, Path]) -> Path:
        """The file for uv: copies of all files, at their paths in an otherwise empty folder, with stubs inserted."""
        for path, text in self._texts.items():
            lines = "\n".join(project_file.needs_of(text)) if path.endswith(".toml") else _HANDLED_OPTIONS.sub("", text)
            place = self._as_list(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(sources.with_stubs(lines, path, local, self._far))
        return self._as_list(self._asked.needs.path)

    def _as_list(self, path: str) -> Path:
        """Where uv finds the lines of a file; by its suffix, it would read a project or a script in its own way."""
        return (self._source / path).with_suffix(".txt" if path.endswith((".toml", ".py")) else Path(path).suffix)

    def _known_needs(self, source: Source) -> list[str]:
        return [sources.known_need(need, self._far, sources.shown(source)) for need in source.requires]

    def _stub(self, source: Source) -> Path:
        folder = self._made / source.key
        folder.mkdir(exist_ok=True)
        return stubs.path_of(folder, source.name, source.version)

    def _exported(self, path: str) -> str:
        """The content of a uv.lock as lines of a requirements file, without what comes with torch."""
        project = (self._source / path).parent
        project.mkdir(parents=True, exist_ok=True)
        for name, text in self._texts.items():
            (self._source / name).write_text(text)
        words = ["export", "--frozen", "--no-dev", "--no-header", "--no-annotate", "--quiet"]
        out = self._scratch / "exported.txt"
        where = ["--project", str(project), "--python", str(self._uv.python), "--output-file", str(out)]
        self._uv.run([*words, *where], project, shown=False)
        return "\n".join(line for line in logical(_written(out)) if not comes_with_torch(line)) + "\n"

    def _options(self) -> list[str]:
        """The options of every resolution: the base's packages, at the base's versions."""
        of_base, base = self._of_base, self._base
        constraints = self._scratch / "base.txt"
        rows = [*self._limits, *(f"{name}=={self._version(version)}" for name, version in of_base.items())]
        constraints.write_text("".join(f"{row}\n" for row in rows))
        own = ["--constraints", str(constraints), "--find-links", str(self._stubs)]
        return [*own, *_of_platform(self._uv, base)]

    def _compiled(self, wanted: Path, *more: str) -> list[str]:
        """The lines of a lock for all that is wanted."""
        out, overrides = self._scratch / "lock.txt", self._scratch / "overrides.txt"
        # uv prefers the versions that its output file already has.
        names = {p.name: p.version for p in self._base.packages if p.name not in self._of_base}
        out.write_text("".join(f"{name}=={self._version(version)}\n" for name, version in names.items()))
        options = ["--overrides", str(overrides)] if self._instead else []
        if any("--pre" in logical(text) for text in self._texts.values()):
            options += ["--prerelease", "allow"]
        options += ["--output-file", str(out), *more]
        self._uv.run(["pip", "compile", *self._options(), *options, str(wanted)], self._source)
        lines = list(islice(logical(_written(out)), store.MOST_LINES + 1))
        if len(lines) > store.MOST_LINES:
            raise UsageError(f"more than {store.MOST_LINES:,} packages", "ask for fewer")
        return lines

    def _has_all(self) -> bool:
        """Whether the base has all that is required: such an image needs no index."""
        if self._asked.needs.kind != "file":
            return False
        wanted, out = self._written_anew({}), self._scratch / "lock.txt"
        words = ["--no-index", "--quiet", "--output-file", str(out), str(wanted)]
        try:
            self._uv.run(["pip", "compile", *self._options(), *words], self._source, shown=False)
        except Failed:
            return False
        # With a page of links in the file, even --no-index finds packages outside the base: compare.
        return {_pin(line) for line in logical(_written(out))} <= {
            f"{p.name}=={stubs.version(p.version)}" for p in self._base.packages
        }

    def _of_index(self, what: str) -> Source:
        """A package that only a build can describe: `NAME==VERSION`. Raises UsageError."""
        name, _, version = what.partition("==")
        if not _ or not re.fullmatch(r"[\w.-]+", name):
            raise UsageError(f"{what[:300]}: only a build shows what it needs", "list a package from an index")
        offered = find_offers([what], self._uv, self._base, self._scratch)
        source = next((offer.source for offer in offered), offers.File())
        line = self._checked(f"{normal(name)}=={version} --hash=sha256:{source.sha256}")
        return sources.of_index(line, normal(name), version, source.address)

    def _chosen(self, lines: list[str], own: Sequence[Source], built: Sequence[Source]) -> Lock:
        """The lock to install: each line a wheel from an index with hashes; or a source, which each host builds."""
        of_base = self._of_base
        pins = {_pin(line) for line in lines}
        if of_base and (fault := other_torch(pins, dict(of_base))):
            raise OtherTorch(fault)
        same = {p.name for p in self._base.packages if f"{p.name}=={self._version(p.version)}" in pins}
        # torch's libraries come only from the base; a sister that the base lacks is installed.
        left_out = sorted(
            name
            for line in lines
            if of_base and FROM_BASE.fullmatch(name := read_name(line)) and name not in (*of_base, *SISTERS)
        )
        apart = same | set(of_base) | set(left_out)
        wanted = {normal(source.name) for source in own} & {read_name(line) for line in lines if " @ file:" in line}
        if self._asked.needs.kind == "project":
            wanted.add(normal(own[0].name))
        mine = [source for source in own if normal(source.name) in wanted]
        chosen = {f"{normal(source.name)}=={source.version}" for source in built} & pins
        mine += [s for s in built if f"{normal(s.name)}=={s.version}" in chosen]
        files = self._of_wheels([line for line in lines if " @ file:" in line and read_name(line) not in wanted])
        rest = [
            line for line in lines
            if read_name(line) not in apart and " @ file:" not in line and _pin(line) not in chosen
        ]  # fmt: skip
        rest, from_source = self._without_wheel(rest)
        for line, url in from_source:
            mine.append(sources.of_index(self._checked(line), read_name(line), _pin(line).partition("==")[2], url))
        whole = [*map(self._checked, rest), *files]
        return Lock(tuple(sorted(whole)), tuple(mine), tuple(left_out), of_base.get("torch", BESIDE_NONE))

    def _of_wheels(self, lines: Sequence[str]) -> list[str]:
        """Lines for wheels from the folder and for fetched ones: name, version, and the hash of what hosts get."""
        by_digest = {wheel.sha256: wheel for wheel in self._asked.wheels.values()}
        rows = []
        for line in lines:
            at = re.search(r"/([0-9a-f]{64})/[^/]+$", line.partition(" --hash")[0])
            wheel = by_digest.get(at[1]) if at else None
            if not wheel:
                raise UsageError(f"{line[:300]}: it points to a file that you were not asked about", "pip config list")
            version = wheel.file.split("-")[1]
            rows.append(self._checked(f"{normal(wheel.name)}=={version} --hash=sha256:{wheel.sha256}"))
        return rows

    def _without_wheel(self, lines: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
        """The lines that have a wheel for the hosts, and the lines that have none, with the address of their source."""
        if not lines:
            return [], []
        offered = {offer.name: offer for offer in find_offers(lines, self._uv, self._base, self._scratch)}
        with_wheel, without = list[str](), list[tuple[str, str]]()
        for line in lines:
            name, head = read_name(line), line.split(" --hash")[0]
            offer = offered.get(name, offers.Offer(name, (), offers.File()))
            # From all files of a version, a lock needs only the hashes of those that fit the hosts.
            fit, pins = [wheel.sha256 for wheel in offer.wheels if wheel.sha256], self._pins.get(name, set())
            of_source = f"sha256:{offer.source.sha256}"
            by_source = of_source in pins and not any(f"sha256:{wheel}" in pins for wheel in fit)
            if offer.wheels and not by_source:
                with_wheel.append(head + "".join(f" --hash=sha256:{digest}" for digest in fit))
            else:
                without.append((f"{head} --hash={of_source}", offer.source.address))
        return with_wheel, without

    def _checked(self, line: str) -> str:
        """The line, with only those of the index's hashes that the user's own pins allow. Raises UsageError."""
        if not re.fullmatch(LINE, line):
            raise UsageError(f"{line[:200]!r} of the index is not a package with a hash", "pip config list")
        return pinned(line, self._pins)

    @cached_property
    def _pins(self) -> dict[str, set[str]]:
        """The hashes that the user's files pin, by name. An empty name as key: each package must have a pin."""
        texts = [text for path, text in self._texts.items() if path.endswith((".txt", ".in"))]
        if self._asked.needs.kind == "uv.lock":
            texts = [_written(self._scratch / "exported.txt")]
        return pins_of(texts)

    def _explained(self, words: str) -> Failed:
        """uv's words, after the user's lines that exclude the base's packages; only those that uv mentions, if any."""
        notes, base = dict[str, tuple[str, str]](), self._of_base
        for where, line, asked, name in asked_in(self._texts):
            if name in base and self._excludes(asked):
                notes[f"{where}: `{line}` excludes {name} {base[name]} of the base"] = where, asked
        # a uv.lock may have a line for each Python
        named = {note: place for note, place in notes.items() if place[1] in words} or notes
        excluding = [where.rpartition(":")[0] for where, _ in named.values()]
        return Failed("\n".join([*named, words]), excluding, "" if named else self._to_correct(words))

    def _to_correct(self, words: str) -> str:
        """The hint that names the user's line if uv found nothing by its name, or not that version; empty if none."""
        unknown = set(map(normal, _UNKNOWN.findall(words)))
        for where, line, _, name in asked_in(self._texts):
            if name in unknown:
                # A script's block may list several in a line.
                place = where.rpartition(":")[0] if ".py:" in where else where
                return f"correct {place} ({line}); {WITHOUT}"
        return ""

    def _excludes(self, line: str) -> bool:
        file = self._scratch / "one.txt"
        file.write_text(line.split(" #")[0].split("--hash")[0].rstrip("\\ ") + "\n")
        try:
            words = ["--no-deps", "--no-index", "--quiet", str(file)]
            self._uv.run(["pip", "compile", *self._options(), *words], self._scratch, shown=False)
        except Failed:
            return True
        return False


def find_offers(lines: Sequence[str], uv: Uv, base: Base, scratch: Path) -> list[offers.Offer]:
    """What the index offers for these pins on the hosts' platform; stubs are not used. Raises DeployError."""
    pins, described = scratch / "pinned.txt", scratch / "pylock.toml"
    pins.write_text("\n".join(lines) + "\n")
    described.unlink(missing_ok=True)
    out = ["--no-deps", "--format", "pylock.toml", "--output-file", str(described), str(pins)]
    uv.run(["pip", "compile", *_of_platform(uv, base), *out], scratch, shown=False)
    return offers.read(_written(described), uv.settings.check_source)


def _of_platform(uv: Uv, base: Base) -> list[str]:
    """The options of every question to an index: the hosts' Python and platform."""
    python = ["--python", str(uv.python), "--python-version", base.python, "--python-platform", base.platform]
    return [*python, "--no-build-isolation", "--no-header", "--no-annotate"]


def pins_of(texts: Sequence[str]) -> dict[str, set[str]]:
    """The hashes that these requirements files pin, by package name."""
    pins = dict[str, set[str]]()
    for line in (line for text in texts for line in logical(text)):
        if line == "--require-hashes":
            pins.setdefault("", set())
        word, digests = line.split()[0], re.findall(r"--hash[= ](\w+:[0-9a-fA-F]+)", line)
        # A wheel may be given by its path alone.
        name = normal(file_of(word).split("-")[0]) if is_wheel(word) else read_name(line)
        if digests and name:
            pins.setdefault(name, set()).update(digest.lower() for digest in digests)
    return pins


def pinned(line: str, pins: dict[str, set[str]]) -> str:
    """The line with only its pinned hashes. Raises UsageError if the index has no such file."""
    allowed = pins.get(read_name(line), set())
    head, *digests = line.split(" --hash=")
    if not allowed and "" not in pins:
        return line
    if not allowed:
        raise UsageError(f"{head}: your file says --require-hashes, but pins no hash for it", "pin it, with its sha256")
    fit = [digest for digest in digests if digest in allowed]
    if not any(digest.startswith("sha256:") for digest in allowed):
        raise UsageError(f"{head}: your file pins no sha256 for it, the index gives no other hash", "pin its sha256")
    if not fit:
        raise UsageError(
            f"{head}: the index offers it with hashes that your file does not pin: that name is another file there",
            "ask the operator of the index; to renew an old pin: uv pip compile --generate-hashes",
        )
    return " --hash=".join([head, *fit])


def logical(text: str) -> Iterator[str]:
    """The lines of a requirements file: continued lines are joined, comments and empty lines are left out."""
    for line in re.sub(r"\\\n\s*", "", text).split("\n"):
        line = re.sub(r"(^|\s)#.*$", "", line).strip()
        if line:
            yield re.sub(r"\s+", " ", line)


def other_torch(pins: set[str], of_base: dict[str, str]) -> str:
    """Why torch's sisters in `pins` do not fit the base: the index offers those built for CUDA. Empty if they fit."""
    torch = of_base["torch"]
    lacking = tuple(f"{name}==" for name in SISTERS if name not in of_base)
    odd = sorted(pin for pin in pins if pin.startswith(lacking) and not pin.endswith("+cpu"))
    if not odd or not torch.endswith("+cpu"):
        return ""
    return f"{' and '.join(odd)} of the index: built for CUDA, not for torch {torch} of the base"


def _written(path: Path) -> str:
    """A file that uv wrote from an index's answers. Raises DeployError if it is too long."""
    try:
        text = plain_file.read(path, _MOST_WRITTEN).decode(errors="replace")
        if text.count("\n") <= _MOST_LINES:
            return text
        why = f"it has more than {_MOST_LINES:,} lines"
    except OSError as fault:
        why = str(fault.strerror)
    raise DeployError(f"what uv wrote of the index's answers ({path.name}): {why}", offers.HINT)


def _pin(line: str) -> str:
    """The `name==version` in a line; empty if it has none."""
    match = re.match(r"([\w.-]+)(?:\[[^\]]*\])?==([^\s;]+)", line)
    return f"{normal(match[1])}=={match[2]}" if match else ""
