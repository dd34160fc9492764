"""Make an environment of a lock: its packages, and those of the base image behind them."""

import hashlib
import os
import site
import sys
import tarfile
from pathlib import Path
from typing import Any

from .tools import FAILED, Stop, Work, run


class Installing(Work):
    """The order `install`."""

    def install(self) -> dict[str, Any]:
        """Make the environment at the target: what the lock says, and the base's packages behind it."""
        target, lock = Path(self.order["target"]), self.scratch / "lock.txt"
        lock.write_text("\n".join(self.order["lock"]) + "\n")
        python = str(target / "bin" / "python")
        run([self.uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(target)],
            self.scratch, shown=False)  # fmt: skip
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--link-mode", "copy"]
        where = ["--find-links", str(self.wheels), "--python", python, "--compile-bytecode"]
        run([self.uv, "pip", "install", *options, *where, "--requirement", str(lock)], self.scratch)
        packages = Path(next(target.glob("lib/python*/site-packages")))
        for path in packages.glob("*.dist-info/uv_cache.json"):  # it says when, so no two are the same
            path.unlink()
            rows = path.with_name("RECORD").read_text().splitlines(keepends=True)
            path.with_name("RECORD").write_text("".join(row for row in rows if "uv_cache.json" not in row))
        (packages / "zz_muster_base.pth").write_text("".join(f"import site; site.addsitedir({p!r})\n" for p in _base()))
        _adopt_scripts(target)
        digest, size = _digest(target)
        os.sync()
        return {"digest": digest, "size": size}

    def unpack(self) -> dict[str, Any]:
        """The environment of another host, which has the same base: a tar file that came with the order."""
        target = Path(self.order["target"]).resolve()
        with tarfile.open(self.scratch / "packages.tar") as tar:
            for member in tar:  # not every Python 3.11 has filters; nothing goes through a link to another place
                if member.name == ".":
                    continue
                if not (target / member.name).parent.resolve().is_relative_to(target):
                    raise Stop(FAILED, f"{member.name}: it does not belong to an environment")
                tar.extract(member, target)
        digest, size = _digest(Path(self.order["target"]))
        os.sync()
        return {"digest": digest, "size": size}


def _adopt_scripts(target: Path) -> None:
    """The base's own commands (torchrun, accelerate) once more, started by the environment's Python."""
    folder, own = Path(sys.executable).parent, f"#!{target}/bin/python\n".encode()
    for path in folder.iterdir():
        made = target / "bin" / path.name
        with open(path, "rb") if path.is_file() else open(os.devnull, "rb") as file:
            first = file.readline(500)
            rest = file.read(1 << 20)
        if first.startswith(b"#!") and b"python" in first and not made.exists() and not path.name.startswith("python"):
            made.write_bytes(own + rest)
            made.chmod(0o755)


def _base() -> list[str]:
    """Where the base's packages lie, as its Python looks for them."""
    places = [
        *site.getsitepackages(),
        *(path for path in sys.path if path.endswith(("site-packages", "dist-packages"))),
    ]
    return [path for path in dict.fromkeys(places) if os.path.isdir(path)]


def _digest(target: Path) -> tuple[str, int]:
    """A digest of every installed file and its name, and the bytes of all. Bytecode holds times."""
    whole, size = hashlib.sha256(), 0
    for folder, folders, names in os.walk(target):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_symlink():
                content = os.readlink(path)
            else:
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
                size += path.stat().st_size
            whole.update(f"{path.relative_to(target)}\0{content}\0".encode())
    return whole.hexdigest(), size
