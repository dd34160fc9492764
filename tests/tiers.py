"""Of the long tests, those that `make test` runs: the first test of a file, and each that holds a promise.

All of them keep two cores busy for more than an hour, and `make test` shall be over in 25 minutes. It runs the same
tests each day, so that a red one is red because of a change. The first test of a file is the one that says most.
`make test-all` runs all, and so does pytest without `--daily`. docs/decisions/0119 has what was measured.
"""

from __future__ import annotations

# These keep both cores busy for minutes, so that the racks beside them miss their times.
HEAVY = tuple(
    f"tests/dist/test_{name}.py"
    for name in ("frameworks", "gpu_check", "meshes", "parallel_page", "sharded_checkpoints", "tensor_plans")
)
LONG = ("tests/cluster/", "tests/dist/", "tests/image/", "tests/slurm/")


def add_option(parser):
    """`make test` asks for it."""
    parser.addoption("--daily", action="store_true", help="of the long tests, the first of each file and the promises")


def left_out(items):
    """The long tests that hold no promise, and are not the first of their file, or of a heavy one."""
    files, others = set(), []
    for item in items:
        file = item.nodeid.partition("::")[0]
        if not file.startswith(LONG) or item.get_closest_marker("holds"):
            continue
        if file in files or file in HEAVY:
            others.append(item)
        files.add(file)
    return others


def lines(counts):
    """What was left out, in lines; `counts` by file."""
    rows = [f"{file}: {count}" for file, count in sorted(counts.items())]
    return [f"{sum(counts.values())} long tests; all of them: make test-all", *rows] if rows else []
