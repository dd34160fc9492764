"""Selects the long tests that `make test` runs: the first test of each file, and each that holds a promise.

All of them together keep two cores busy for more than an hour, and `make test` should end within 25 minutes. It runs
the same tests each day, so that a test that turns red does so because of a change. The first test of a file is the most
telling one. `make test-all` runs all, and so does pytest without `--daily`. docs/decisions/0119 has the measurements.
"""

from __future__ import annotations

# These files take minutes: `make test` runs no test of the HEAVY ones, and only the first test of the FIRST_ALONE ones.
HEAVY = tuple(
    f"tests/{name}.py"
    for name in (
        *("dist/test_frameworks", "dist/test_gpu_check", "dist/test_meshes", "dist/test_parallel_page"),
        *("dist/test_sharded_checkpoints", "dist/test_tensor_plans", "cluster/test_going_on", "cluster/test_sharded"),
        *("cluster/test_wait", "cluster/test_installed", "cluster/test_membership", "cluster/test_board"),
        *("cluster/test_box_forms", "cluster/test_box_tutorial", "cluster/test_box_phases", "cluster/test_box_logins"),
    )
)
FIRST_ALONE = tuple(
    f"tests/cluster/test_{name}.py" for name in ("overlay", "packages", "neighbours", "gpus", "kept", "secrets")
)
LONG = ("tests/cluster/", "tests/dist/", "tests/image/", "tests/slurm/")


def add_option(parser):
    """Add the option that `make test` uses."""
    parser.addoption("--daily", action="store_true", help="of the long tests, the first of each file and the promises")


def left_out(items):
    """The long tests to leave out: those in heavy files, and others that are not the first and hold no promise."""
    files, others = set(), []
    for item in items:
        file = item.nodeid.partition("::")[0]
        holds = item.get_closest_marker("holds") and file not in (*FIRST_ALONE, *HEAVY)
        if not file.startswith(LONG) or holds:
            continue
        if file in files or file in HEAVY:
            others.append(item)
        files.add(file)
    return others


def lines(counts):
    """Lines that report what was left out; `counts` has the number of tests by file."""
    rows = [f"{file}: {count}" for file, count in sorted(counts.items())]
    return [f"{sum(counts.values())} long tests; all of them: make test-all", *rows] if rows else []
