"""The output of real torchrun on each host of a failed case: lab/recordings.tar.xz has a file CASE/HOST.log for each.

    tar -xf lab/recordings.tar.xz -C FOLDER      to look at them
    python -m lab.recordings FOLDER              makes the archive from a folder; the same files give the same bytes

`python -m benchmarks.preflight_truth` adds to it.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parent / "recordings.tar.xz"


def load() -> dict[str, dict[str, str]]:
    """The output of each failed case, by the case's name (`FAULT-COUNT-PLACE`), then by host."""
    cases: dict[str, dict[str, str]] = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            case, host = member.name.removesuffix(".log").split("/")
            cases.setdefault(case, {})[host] = archive.extractfile(member).read().decode()
    return cases


def of_fault(case: str) -> str:
    """The name of the fault, from a case's name."""
    return case.rsplit("-", 2)[0]


def store(cases: dict[str, dict[str, str]]) -> None:
    """Write the archive. It contains only names, texts and their order, so that equal cases give equal bytes."""
    made = ARCHIVE.with_suffix(".new")
    with tarfile.open(made, "w:xz", preset=9, format=tarfile.USTAR_FORMAT) as archive:
        for case, texts in sorted(cases.items()):
            for host, text in sorted(texts.items()):
                content = text.encode()
                member = tarfile.TarInfo(f"{case}/{host}.log")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    made.replace(ARCHIVE)


def main() -> None:
    """Make the archive from a folder."""
    files = sorted(Path(sys.argv[1]).glob("*/*.log"))
    cases: dict[str, dict[str, str]] = {}
    for path in files:
        cases.setdefault(path.parent.name, {})[path.stem] = path.read_bytes().decode()
    store(cases)
    print(f"{len(files)} files, {ARCHIVE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
