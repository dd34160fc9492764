"""What preflight says of each recorded draw: a cluster with one to three faults, and what its probes answered."""

from deploy.report import preflight_text
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
