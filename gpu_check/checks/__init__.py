"""The checks, one a file: TITLE, LIMIT_S (the most seconds it may take), and run(bench), which yields findings."""

ORDER = (
    "facts",
    "hosts",
    "kill",
    "link",
    "forked",
    "checkpoint",
    "precision",
    "watching",
    "memory",
    "throughput",
    "several",
    "telemetry",
    "orphans",
)
