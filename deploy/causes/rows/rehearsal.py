"""Causes: what a rehearsal shows. Data."""

from ..row import LAB, Row, Section

SECTIONS = (
    Section(
        "The rehearsal",
        (
            Row(
                "not-known",
                "Connections failed in a way that no rule of preflight explains. The lines say what is odd, in order.",
                by_hand="repeat the lines of evidence on the hosts that they name",
                fix=(
                    "Compare the named hosts with others that work; `muster preflight --keep FILE` keeps all answers "
                    "for a report."
                ),
                source=LAB,
                command="compare these hosts with others; muster preflight --keep FILE keeps all answers",
                group="links",
            ),
            Row(
                "no-proof",
                "There is no torch where the ranks would run, so nothing was rehearsed.",
                by_hand=(
                    "`docker run --rm IMAGE python -c 'import torch'`; `docker run --rm --entrypoint sh IMAGE -c "
                    "'command -v python; echo $PATH'`; with another `--style`, `python3 -c 'import torch'` on the "
                    "host"
                ),
                fix="Use an image with torch; with another `--style`, name your Python: `--python ~/venv/bin/python`.",
            ),
            Row(
                "proof-failed",
                (
                    "Every check passed, but the rehearsal failed. The text names the host, the step and its "
                    "last words. If each host only lost contact with another one, the text names the pair; "
                    "either end may then be the cause."
                ),
                by_hand=(
                    "`muster preflight --hosts HOST` tries one host alone; 132, 134, 135, 137 and 139 are signals: "
                    "illegal instruction, abort, bus error, killed (memory), crash"
                ),
                fix="on the named host, do what its last words say; if a pair is named, check the firewalls of both.",
                symptom="the run does not start there",
            ),
            Row(
                "fabric-unused",
                (
                    "The hosts have InfiniBand, RoCE or EFA, and NCCL's own log of the rehearsal says that it uses "
                    "sockets. Training works, and is 10 to 50 times slower. If the log does not mention its "
                    "network, the warning says that it could not tell: the run's environment sets `NCCL_DEBUG` or "
                    "`NCCL_DEBUG_FILE`. Muster gives no EFA device to a run, and does not support ROCm GPUs."
                ),
                by_hand="`NCCL_DEBUG=INFO` in the run: `Using network Socket`, `via NET/Socket`",
                fix=(
                    "Mend what the log gives as the reason: a variable, a library that the image lacks, or a "
                    "port that is down."
                ),
                source=("the excerpts in `tests/unit/preflight/*_logs.txt`, with their addresses"),
                command="unset NCCL_DEBUG and NCCL_DEBUG_FILE in the run's environment; then run muster "
                "preflight again",
                symptom="steps 10 to 50 times slower",
            ),
        ),
        intro=(
            "When the [rehearsal](preflight.md#the-rehearsal) fails, preflight quotes its own words, and adds "
            "in brackets what it then looked at: the free space and permissions of the folder, the free space "
            "of /dev/shm, the counters of the control group. If both agree, the cause is sure: `shm-small`, "
            "`disk-full`, "
            "`inodes-full`, `home-readonly`, `process-limits`, `open-files`, `memory-low`, `gpu-busy`, "
            "`port-busy`, `interface-missing`. The entries below are for all other cases."
        ),
        group="proof",
    ),
)
