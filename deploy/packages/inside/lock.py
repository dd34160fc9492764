"""Resolve requirements beside the torch of a base image, and build what has no wheel."""

import base64
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .tools import FAILED, FROM_BASE, NAME, PIECE, Stop, Work, comes_along, normal, read_name, run, tell

# uv says so where a build does not find a module that it did not ask for.
_NEEDS_TORCH = re.compile(r"`([A-Za-z0-9._-]+)@[^`]{1,200}` depends\s+on\s+`torch`")


class Locking(Work):
    """The order `lock`."""

    # Options for the packages that are built beside the base's torch.
    with_torch: tuple[str, ...] = ()

    def lock(self) -> dict[str, Any]:
        """Resolve the requirements beside what the base has; build what has no wheel."""
        source, kind = Path(self.order["source"]), self.order["kind"]
        of_base = self.of_base()
        if kind == "file" and not self.order["builds"] and self._has_all(source):
            return {"lock": [], "left_out": [], "base": {"torch": of_base["torch"]}}
        if self.order["builds"]:  # a build writes into its folder
            source = self.scratch / "source"
            shutil.copytree(self.order["source"], source, symlinks=True)
        for name, path in self.order["kept"].items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.scratch / name, source / path)
        for path in self.order["files_read"]:
            self._with_fetched(source / path)
        asked = self._asked(source, kind)
        stubs, constraints = self.scratch / "stubs", self.scratch / "base.txt"
        stubs.mkdir()
        for entry in self.base.values():
            _stub(stubs, entry, set(of_base))
        constraints.write_text("".join(f"{name}=={_stub_version(version)}\n" for name, version in of_base.items()))
        unbuilt = self.scratch / "unbuilt.txt"  # a build needs real packages
        unbuilt.write_text("".join(f"{name}!={_stub_version(entry.version)}\n" for name, entry in self.base.items()))
        out = self.scratch / "lock.txt"
        # uv prefers the versions that its output file names.
        names = {name: entry.version for name, entry in self.base.items() if name not in of_base}
        out.write_text("".join(f"{name}=={_stub_version(version)}\n" for name, version in names.items()))
        sources = [word for name in of_base for word in ("--no-sources-package", name)]
        options = [
            "--constraints",
            str(constraints),
            "--build-constraints",
            str(unbuilt),
            "--find-links",
            str(stubs),
            "--python",
            sys.executable,
        ]
        compile_ = [self.uv, "pip", "compile", "--no-header", "--no-annotate", *options, *sources]
        try:
            self._build_with_torch([*compile_, "--generate-hashes", "--output-file", str(out), str(asked)], source)
        except Stop as fault:
            raise Stop(fault.code, self._explained(source, fault.words, stubs, of_base)) from fault
        return self._chosen(list(_logical(out.read_text())), compile_, of_base, source)

    def _build_with_torch(self, words: list[str], folder: Path) -> None:
        """Run uv. A package whose build needs torch, and does not say so (flash-attn), is built with the base's own."""
        while True:
            try:
                return run([*words, *self.with_torch], folder)
            except Stop as fault:
                names = [match[1] for match in _NEEDS_TORCH.finditer(fault.words)]
                more = [word for name in names for word in ("--no-build-isolation-package", name)]
                if not names or names[0] in self.with_torch:
                    raise
                tell(say=f"{names[0]} is built beside the torch of the base")
                self.with_torch = (*self.with_torch, *more)

    def _has_all(self, source: Path) -> bool:
        """Whether the base has all that is asked: such an image needs no index, and not even uv."""
        words = ["install", "--dry-run", "--no-index", "--no-build-isolation", "--requirement"]
        command = [sys.executable, "-m", "pip", *words, self.order["requirements"]]
        done = subprocess.run(command, cwd=source, capture_output=True, check=False)
        return done.returncode == 0 and b"Would install" not in done.stdout  # it would: a wheel of the folder

    def _with_fetched(self, path: Path) -> None:
        """Name what came from git repositories by its folder here: there is no git, and no key."""
        text = path.read_text(errors="replace") if self.order["git"] and not path.is_symlink() else ""
        for number, word in enumerate(self.order["git"]):
            folder = self.scratch / f"git-{number}"
            if not folder.exists():
                with tarfile.open(f"{folder}.tar") as tar:
                    tar.extractall(folder)
                for name in ("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt"):
                    for own in (*folder.glob(name), *folder.glob(f"*/{name}"), *folder.glob(f"*/*/{name}")):
                        self._with_fetched(own)
            inner = re.search(r"[#&]subdirectory=([^&]+)", word)
            place = f"file://{folder}{'/' + inner[1] if inner else ''}"
            text = re.sub(rf"(?:(?:-e|--editable)\s+)?{re.escape(word)}(#subdirectory=\S+)?", place, text)
            text = re.sub(rf"(?m)^([\w.-]+(?:\[[^\]]*\])?)\s*@\s*{re.escape(place)}", rf"\1 @ {place}", text)
        if text:
            path.write_text(text)

    def _asked(self, source: Path, kind: str) -> Path:
        """What uv resolves: the file itself, or what its project stands for."""
        path, asked = source / str(self.order["requirements"]), self.scratch / "asked.txt"
        if kind == "uv.lock":
            words = ["export", "--frozen", "--no-dev", "--no-header", "--no-annotate", "--quiet"]
            run([self.uv, *words, "--project", str(path.parent), "--output-file", str(asked)], path.parent)
            lines = [line for line in _logical(asked.read_text()) if not comes_along(line)]
            asked.write_text("\n".join(lines) + "\n")
            self._with_fetched(asked)
            return asked
        if kind == "project":
            asked.write_text(f"-e {path.parent}\n")
            return asked
        return path

    def _chosen(self, lines: list[str], compile_: list[str], of_base: dict[str, str], source: Path) -> dict[str, Any]:
        """The lines of the lock that are to be installed: each a wheel with its hash."""
        pins = {_pin(line) for line in lines}
        if fault := _other_torch(pins, of_base):
            raise Stop(FAILED, fault)
        same = {name for name, entry in self.base.items() if f"{name}=={_stub_version(entry.version)}" in pins}
        entries = {line: read_name(line) for line in lines if not line.startswith("-e")}
        left_out = sorted(name for name in entries.values() if FROM_BASE.fullmatch(name) and name not in of_base)
        apart = same | set(of_base) | set(left_out)
        # torch and its own come from nowhere else, so these two are never installed.
        left_out = [name for name in left_out if name not in ("torchvision", "torchaudio")]
        apart -= {"torchvision", "torchaudio"} - same - set(of_base)
        local = [line for line in lines if line.startswith("-e") or re.search(r"@ file:|^\./|^\.\./|^/|^\.$", line)]
        rest = [line for line, name in entries.items() if name not in apart and line not in local]
        # A name of the base that a local package stands for is the local one.
        built = [self._local(line, source) for line in local]
        rest, from_source = self._without_wheel(rest, compile_)
        built += self._built(from_source)
        for wheel in built:
            _send(wheel)
        lines = [*rest, *(f"{_wheel_pin(wheel)} --hash=sha256:{_sha256(wheel)}" for wheel in built)]
        return {"lock": sorted(lines), "left_out": left_out, "base": {"torch": of_base["torch"]}}

    def _without_wheel(self, lines: list[str], compile_: list[str]) -> tuple[list[str], list[str]]:
        """The lines that have a wheel for this machine, and those that have none."""
        pinned, described = self.scratch / "pinned.txt", self.scratch / "pylock.toml"
        pinned.write_text("\n".join(lines) + "\n")
        if not lines:
            return [], []
        run([*compile_, "--no-deps", "--format", "pylock.toml", "--output-file", str(described), str(pinned)],
            self.scratch, shown=False)  # fmt: skip
        packages = tomllib.loads(described.read_text()).get("packages", [])
        # Of all files of a version, a lock needs the hashes of those that fit here.
        fit = {
            normal(package["name"]): [wheel["hashes"]["sha256"] for wheel in package["wheels"]]
            for package in packages
            if package.get("wheels")
        }
        direct = {normal(p["name"]) for p in packages if p.get("archive", {}).get("url", "").endswith(".whl")}
        with_wheel = [
            line.split(" --hash")[0] + "".join(f" --hash=sha256:{digest}" for digest in fit[read_name(line)])
            for line in lines
            if read_name(line) in fit
        ]
        with_wheel += [line for line in lines if read_name(line) in direct]
        return with_wheel, [line for line in lines if read_name(line) not in {*fit, *direct}]

    def _built(self, lines: list[str]) -> list[Path]:
        """Wheels of packages that have only source. uv keeps what it built in its cache."""
        if not lines:
            return []
        pinned = self.scratch / "sources.txt"
        pinned.write_text("\n".join(lines) + "\n")
        target = ["--target", str(self.scratch / "built"), "--python", sys.executable]
        # What is built against one torch does not fit another, which uv's own cache does not know.
        kind = hashlib.sha256(f"{sys.version} {self.of_base()['torch']}".encode()).hexdigest()[:16]
        cache = self.cache / f"built-{kind}"
        words = [self.uv, "pip", "install", "--no-deps", *target, "--cache-dir", str(cache)]
        self._build_with_torch([*words, "--requirement", str(pinned)], self.scratch)
        wheels = []
        for line in lines:
            name = read_name(line)
            made = [
                path
                for path in cache.glob("sdists-v*/**/*.whl")
                if normal(path.name.split("-")[0]) == name and ("==" not in line or _wheel_pin(path) == _pin(line))
            ]
            if not made:
                raise Stop(FAILED, f"uv built {name}, and left no wheel in its cache")
            newest = max(made, key=lambda path: path.stat().st_mtime)
            wheels.append(Path(shutil.copy(newest, self.wheels)))
        return wheels

    def _local(self, line: str, source: Path) -> Path:
        """A wheel of the project, or of a package of it. An editable one only says where its code lies."""
        editable = line.startswith("-e")
        text = re.sub(r"^-e\s+|^.*@ ", "", line.split(" --hash")[0].split(" ;")[0]).removeprefix("file://").strip()
        folder = (source / text.split("#")[0]).resolve()
        if folder.suffix == ".whl" and folder.is_file():
            return Path(shutil.copy(folder, self.wheels))
        out = Path(tempfile.mkdtemp(dir=self.scratch))
        run([self.uv, "build", "--wheel", "--python", sys.executable, "--out-dir", str(out), str(folder)], source)
        wheel = next(out.glob("*.whl"))
        if not editable:
            return Path(shutil.copy(wheel, self.wheels))
        inside = folder.relative_to(source.resolve()).as_posix()
        return _editable(wheel, folder, inside, self.wheels)

    def _explained(self, source: Path, words: str, stubs: Path, of_base: dict[str, str]) -> str:
        """uv's words, below each line of the user's files that excludes what the base has."""
        notes = []
        for path in self.order["files_read"]:
            for number, line in enumerate((source / path).read_text(errors="replace").splitlines(), 1):
                word = NAME.match(line.strip().strip("\"',"))
                name = normal(word[1]) if word else ""
                if name in of_base and self._excludes(line.strip().strip("\"',"), stubs):
                    notes.append(f"{path}:{number}: `{line.strip()}` excludes {name} {of_base[name]} of the base image")
        return "\n".join([*notes, words])

    def _excludes(self, line: str, stubs: Path) -> bool:
        file = self.scratch / "one.txt"
        file.write_text(line.split(" #")[0].split("--hash")[0].rstrip("\\ ") + "\n")
        where = ["--no-deps", "--no-index", "--find-links", str(stubs), "--python", sys.executable, "--quiet"]
        done = subprocess.run([self.uv, "pip", "compile", *where, str(file)], capture_output=True, check=False)
        return done.returncode != 0


def _stub(folder: Path, entry: importlib.metadata.Distribution, of_base: set[str]) -> None:
    """A wheel of nothing but the name, version and needs of what the base has: uv resolves with it."""
    name, version = re.sub(r"[-_.]+", "_", entry.metadata["Name"]), _stub_version(entry.version)
    needs = [need for need in entry.requires or () if not comes_along(need) or normal(read_name(need)) in of_base]
    head = f"Metadata-Version: 2.1\nName: {entry.metadata['Name']}\nVersion: {version}\n"
    head += "".join(f"Provides-Extra: {extra}\n" for extra in entry.metadata.get_all("Provides-Extra") or ())
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", head + "".join(f"Requires-Dist: {need}\n" for need in needs))
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: muster\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def _stub_version(version: str) -> str:
    """A version that no index has, and that means the same."""
    return version if "+" in version else f"{version}+base"


def _editable(wheel: Path, folder: Path, inside: str, out: Path) -> Path:
    """Make the wheel without its code: a line in it names the package's folder in the run's working folder."""
    with zipfile.ZipFile(wheel) as whole:
        names = whole.namelist()
        info = {name: whole.read(name) for name in names if ".dist-info/" in name and not name.endswith("/RECORD")}
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    roots = [root for root in ("src", ".") if tops and all((folder / root / top).exists() for top in tops)]
    if not roots:
        raise Stop(FAILED, f"-e {inside}: its build makes files that are not in the folder: write it without -e")
    head = next(name for name in info if name.endswith("/WHEEL"))
    info[head] = re.sub(rb"(?m)^Root-Is-Purelib: .*|^Tag: .*$", b"", info[head]).strip()
    info[head] += b"\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    place = os.path.normpath(f"work/{inside}/{roots[0]}")
    run = 'os.environ.get("MUSTER_RUN_DIR") or "/muster/run"'
    line = f"import os, site; site.addsitedir(os.path.join({run}, {place!r}))\n"
    name, version = wheel.name.split("-")[:2]
    made = out / f"{name}-{version}-py3-none-any.whl"
    files = {**info, f"_muster_editable_{name}.pth": line.encode()}
    record = head.replace("/WHEEL", "/RECORD")
    rows = "".join(f"{path},sha256={_urlsafe(data)},{len(data)}\n" for path, data in sorted(files.items()))
    with zipfile.ZipFile(made, "w") as whole:
        for path, data in [*sorted(files.items()), (record, f"{rows}{record},,\n".encode())]:
            whole.writestr(zipfile.ZipInfo(path), data)
    return made


def _logical(text: str) -> Iterator[str]:
    """The lines of a requirements file, joined where they continue, without comments and blank ones."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        line = re.sub(r"(^|\s)#.*$", "", line).strip()
        if line:
            yield re.sub(r"\s+", " ", line)


def _other_torch(pins: set[str], of_base: dict[str, str]) -> str:
    """Why the torchvision of these does not fit the base: an index offers the one that is built for torch with CUDA."""
    pin = next((pin for pin in pins if pin.startswith("torchvision==")), "")
    if not pin or "torchvision" in of_base or not of_base["torch"].endswith("+cpu") or pin.endswith("+cpu"):
        return ""
    return f"{pin} of the index is not built for torch {of_base['torch']} of the base: name an image with torchvision"


def _pin(line: str) -> str:
    """`name==version` of a line."""
    match = re.match(r"([\w.-]+)(?:\[[^\]]*\])?==([^\s;]+)", line)
    return f"{normal(match[1])}=={match[2]}" if match else ""


def _wheel_pin(wheel: Path) -> str:
    name, version = wheel.name.split("-")[:2]
    return f"{normal(name)}=={version}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _send(path: Path) -> None:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            tell(wheel=path.name, bytes=base64.b64encode(piece).decode())
