"""Make `digits.csv.gz`, the data of the `digits` recipe, from its source. Run it yourself; training never runs it.

    python trainer/recipes/make_digits.py                  # from scikit-learn's load_digits (pip install scikit-learn)
    python trainer/recipes/make_digits.py optdigits.tes    # from UCI's own file, archive.ics.uci.edu/dataset/80

Both commands produce the same text: one line for each digit, with 64 grey values of 0..16 row by row, then the class.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from pathlib import Path

TARGET = Path(__file__).with_name("digits.csv.gz")
SHA256 = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"  # of the text, not of the gzip


def from_scikit_learn() -> list[list[int]]:
    """The 1,797 rows of 65 whole numbers that scikit-learn packages. Raises ImportError without scikit-learn."""
    from sklearn.datasets import load_digits  # type: ignore[import-not-found, import-untyped, unused-ignore]

    digits = load_digits()
    return [
        [int(value) for value in (*pixels, label)] for pixels, label in zip(digits.data, digits.target, strict=True)
    ]


def from_uci(path: Path) -> list[list[int]]:
    """The 1,797 rows from `optdigits.tes`. Raises OSError or ValueError if the file is missing or different."""
    return [[int(value) for value in line.split(",")] for line in path.read_text().split()]


def main() -> None:
    """Write the file next to this script, or exit with an error if the digits are not the expected ones."""
    rows = from_uci(Path(sys.argv[1])) if len(sys.argv) > 1 else from_scikit_learn()
    text = "".join(",".join(map(str, row)) + "\n" for row in rows).encode()
    digest = hashlib.sha256(text).hexdigest()
    if digest != SHA256:
        sys.exit(f"error: not the expected digits: {len(rows)} rows, sha256 {digest}, expected 1797 rows, {SHA256}")
    # GzipFile, unlike gzip.compress, writes no name, time or system: the same zlib makes the same bytes on any machine.
    with TARGET.open("wb") as file, gzip.GzipFile("", "wb", compresslevel=9, fileobj=file, mtime=0) as packed:
        packed.write(text)
    print(f"{TARGET}: {len(rows)} digits, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
