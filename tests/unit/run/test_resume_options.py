"""The options for a run's next start on the remaining hosts."""

import pytest

from deploy.run.resume_options import options


@pytest.mark.parametrize(
    ("again", "planned", "left", "expected"),
    [
        ("--min-nodes 2 --spare d", 3, 3, "--min-nodes 2 --spare d"),
        ("--folder code --min-nodes 2 --image my:1", 3, 2, "--folder code --image my:1"),
        ("--min-nodes 2", 4, 3, "--min-nodes 2"),
        ("--min-nodes 3", 4, 3, "--min-nodes 2"),
        ("--min-nodes 3 --arbiter d --spare e", 5, 4, "--min-nodes 3"),
        ("--env 'A=two  blanks'", 3, 3, "--env 'A=two  blanks'"),
    ],
)
def test_a_start_on_fewer_hosts_lowers_min_nodes_or_drops_it(again, planned, left, expected):
    assert options({"again": again, "hosts": ["a"] * planned}, left) == expected
