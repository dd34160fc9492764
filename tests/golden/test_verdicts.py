"""The verdicts on recorded draws (clusters with one to three faults), on recorded GPUs and on invented answers."""

from deploy.preflight import judge
from deploy.report import preflight_text
from lab import gpu_hosts
from lab.drawn import recorded
from tests.golden.held import hold
from tests.golden.made_up import made_up


def shown(words, verdict, backend):
    """A verdict as text, then its causes as in `--json`, because the text of a warning does not name its cause."""
    found = [f"json    {each['level']}: {each['cause']}" for each in verdict.json()["findings"]]
    return [f"== {words}", *preflight_text.lines_of(verdict, backend), *found]


def test_the_verdict_on_each_recorded_draw_is_unchanged():
    blocks = []
    for entry in recorded.load():
        if entry["answers"]:
            _, verdict = recorded.judged(entry)
            lines = preflight_text.lines_of(verdict, "gloo")
            blocks += [f"== {entry['id']} ({entry['truth']}): {entry['words']}", *lines]
    hold("verdicts.txt", "\n".join(blocks))


def test_the_verdict_on_each_recorded_gpu_fault_is_unchanged():
    blocks = []
    for case in gpu_hosts.CASES:
        verdict, _ = gpu_hosts.tried(case, 2, 0)
        blocks += shown(case.name, verdict, "nccl")
    hold("gpu_verdicts.txt", "\n".join(blocks))


def test_the_verdict_on_each_invented_fault_is_unchanged():
    blocks = [line for words, seen in made_up().items() for line in shown(words, judge(seen), "gloo")]
    hold("made_up_verdicts.txt", "\n".join(blocks))
