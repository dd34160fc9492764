"""`make pins`: take the newest version of everything that is pinned, lock it again, and print what changed.

Packages come from this machine's pip index, images from where Docker pulls them. A requirement with `<` stays below
that version. This changes files and commits nothing: tests decide whether the newer versions are kept.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from release.sbom import read_lock

HOME = Path(__file__).resolve().parents[1]
REQUIREMENTS = HOME / "requirements"
# The copy that lock.sh makes for an installed Muster.
HOSTS_LOCK = HOME / "deploy/send/packages/uv.txt"
# This file pins images by digest: `name:tag@sha256:...`.
DOCKERFILE = HOME / "Dockerfile"
_EXACT = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
_IMAGE = re.compile(r"([\w./-]+:[\w.-]+)@(sha256:[0-9a-f]{64})")


def loosen(text: str) -> str:
    """The requirements, with each exact pin turned into a lower bound."""
    return _EXACT.sub(r"\1>=\2", text)


def pin(text: str, versions: dict[str, str]) -> str:
    """The requirements, with each exact pin set to the version that is locked now."""
    return _EXACT.sub(lambda found: f"{found[1]}=={versions.get(_plain(found[1]), found[2])}", text)


def tell_changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """A line for each package that has another version, is new, or is gone."""
    lines = [f"{name} {before[name]} -> {after[name]}" for name in before.keys() & after.keys()]
    lines = [line for line in lines if line.split()[1] != line.split()[3]]
    lines += [f"{name} {after[name]} is new" for name in after.keys() - before.keys()]
    lines += [f"{name} {before[name]} is gone" for name in before.keys() - after.keys()]
    return sorted(lines)


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _locked() -> dict[str, str]:
    locks = sorted(REQUIREMENTS.glob("*.txt"))
    return {_plain(name): version for lock in locks for name, version, _ in read_lock(lock.read_text())}


def renew_packages() -> list[str]:
    """Lock the newest versions, then pin them. Raises subprocess.CalledProcessError, after restoring all files."""
    inputs = {file: file.read_text() for file in REQUIREMENTS.glob("*.in")}
    locks = {file: file.read_text() for file in (*REQUIREMENTS.glob("*.txt"), HOSTS_LOCK)}
    before = _locked()
    try:
        for file, text in inputs.items():
            file.write_text(loosen(text))
        # lock.sh lets uv write to new files, so that it does not prefer the versions in the old locks.
        subprocess.run([REQUIREMENTS / "lock.sh"], check=True)
        newest = _locked()
        for file, text in inputs.items():
            file.write_text(pin(text, newest))
        subprocess.run([REQUIREMENTS / "lock.sh"], check=True)
    except BaseException:
        for file, text in (inputs | locks).items():
            file.write_text(text)
        raise
    return tell_changes(before, _locked())


def renew_images() -> list[str]:
    """Update the digests of the images' tags. A digest that cannot be looked up stays, and is reported."""
    said, text = [], DOCKERFILE.read_text()
    for image, digest in dict(_IMAGE.findall(text)).items():
        asked = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image]
        try:
            done = subprocess.run(asked, text=True, capture_output=True, check=False, timeout=120)
            now = done.stdout.strip() if done.returncode == 0 else ""
        except (OSError, subprocess.TimeoutExpired):
            now = ""
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", now):
            said.append(f"{image}: its registry did not answer, so its pin stays")
        elif now != digest:
            text = text.replace(digest, now)
            said.append(f"{image} {digest[7:19]} -> {now[7:19]}")
    DOCKERFILE.write_text(text)
    return said


def main() -> int:
    """Renew all pins, and print what changed."""
    try:
        packages = renew_packages()
    except subprocess.CalledProcessError as fault:
        print(f"error: lock.sh ended with code {fault.returncode}; all pins are as before", file=sys.stderr)
        print("hint: its output is above; to try again: requirements/lock.sh", file=sys.stderr)
        return 1
    lines = [*packages, *renew_images()]
    print("\n".join(lines) or "every pin is the newest version already")
    print("renew these yourself: deploy/send/image/official.py (a row for each CUDA), .github/workflows (by commit)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
