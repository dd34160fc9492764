"""The explanations of the failing lines of each recorded thread, and of an example of each cause."""

from pathlib import Path

from deploy.commands.explain import lines_of
from deploy.explain.cause import explain
from lab import threads
from tests.golden.held import hold

EXAMPLES = Path(__file__).parents[1] / "unit/explain/examples.txt"


def test_the_explanation_of_each_recorded_thread_is_unchanged():
    blocks = []
    for thread in threads.load():
        blocks += [f"== {thread.source}", *lines_of(explain({"log": thread.text}))]
    hold("answers.txt", "\n".join(blocks))


def test_the_explanation_of_each_example_of_a_cause_is_unchanged():
    blocks = []
    for block in f"\n{EXAMPLES.read_text()}".split("\n=== ")[1:]:
        cause, text = block.split("\n", 1)
        blocks += [f"== {cause}", *lines_of(explain({"log": text}))]
    hold("examples.txt", "\n".join(blocks))
