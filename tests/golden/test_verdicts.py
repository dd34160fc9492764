"""What preflight says of each recorded draw, a cluster with one to three faults, and of each recorded fault of GPUs."""

from deploy.report import preflight_text
from lab import gpu_hosts
from lab.drawn import recorded
from tests.golden.held import hold


def test_each_recorded_draw_has_its_verdict():
    blocks = []
    for entry in recorded.load():
        if entry["answers"]:
            _, verdict = recorded.judged(entry)
            lines = preflight_text.lines_of(verdict, "gloo")
            blocks += [f"== {entry['id']} ({entry['truth']}): {entry['words']}", *lines]
    hold("verdicts.txt", "\n".join(blocks))


def test_each_recorded_fault_of_gpus_has_its_verdict():
    blocks = []
    for case in gpu_hosts.CASES:
        verdict, _ = gpu_hosts.tried(case, 2, 0)
        blocks += [f"== {case.name}", *preflight_text.lines_of(verdict, "nccl")]
    hold("gpu_verdicts.txt", "\n".join(blocks))
