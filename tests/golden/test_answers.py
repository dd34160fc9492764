"""What explain says of the failing lines of each recorded thread, and of torch's own words in a run's folder."""

from deploy.cli.explain import lines_of
from deploy.explain.cause import explain
from lab import threads
from tests.golden.held import hold


def test_each_recorded_thread_has_its_answer():
    blocks = []
    for thread in threads.load():
        blocks += [f"== {thread.source}", *lines_of(explain({"log": thread.text}))]
    hold("answers.txt", "\n".join(blocks))
