"""What a login node tells of a job is copied where it belongs, and nowhere else."""

import base64

import pytest

from deploy.core.errors import BadAnswer
from deploy.slurm.mirror import JobCopy


@pytest.fixture
def copied(tmp_path):
    run_dir = tmp_path / "r1"
    run_dir.mkdir()
    said = []
    made = JobCopy(run_dir, "login", said.append)
    made.said, made.dir = said, run_dir
    made.tell = lambda *lines: [made.take(f"{made.mark} {line}") for line in lines]
    return made


def packed(text):
    return base64.b64encode(text.encode()).decode()


def test_a_state_counts_once_it_is_whole(copied):
    copied.tell("said job JobState=RUNNING Reason=None Dependency=(null)", "said hosts n1 n2")
    assert copied.job is None
    copied.tell("said .")
    assert (copied.job.state, copied.job.hosts) == ("RUNNING", ("n1", "n2"))


def test_without_the_mark_nothing_counts(copied):
    copied.take("said job JobState=COMPLETED")
    copied.take(f"doc outcome/n1-0.json {packed('{}')} .")
    assert copied.job is None
    assert not list(copied.dir.rglob("*"))


def test_a_log_begins_where_it_is_told_and_goes_on_without_repeats(copied):
    for offset, text in ((100, "one\n"), (104, "two\n"), (104, "two\nthree\n")):
        copied.tell(f"add logs/rank-0.log {offset} {packed(text)} .")
    assert (copied.dir / "logs/rank-0.log").read_text().endswith("cluster)\none\ntwo\nthree\n")
    assert copied.copied_sizes()["logs/rank-0.log"] == 114


def test_two_commands_that_follow_a_job_from_one_folder_keep_each_line_once(copied):
    """`muster attach` twice: each line stood twice in the log, and so in what both showed."""
    other = JobCopy(copied.dir, "login", pytest.fail)
    for offset, text in ((0, "one\n"), (4, "two\n")):
        for each in (copied, other):
            each.take(f"{each.mark} add logs/rank-0.log {offset} {packed(text)} .")
    assert (copied.dir / "logs/rank-0.log").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(("first", "second"), [("one\ntwo\n", "one\n"), ("one\n", "one\ntwo\n")])
def test_who_goes_on_after_another_attach_repeats_no_line_and_says_what_is_not_here(copied, first, second):
    """Lines stood twice, or were missing without a word: each of the two had read to a place of its own."""
    other = JobCopy(copied.dir, "login", pytest.fail)
    copied.tell(f"add logs/rank-0.log 0 {packed(first)} .")
    other.take(f"{other.mark} add logs/rank-0.log 0 {packed(second)} .")
    copied._out.close()  # the first one ends
    rest = "one\ntwo\nthree\n"[len(second) :]
    other.take(f"{other.mark} add logs/rank-0.log {len(second)} {packed(rest)} .")
    other.take(f"{other.mark} add logs/rank-0.log 14 {packed('four')} .")
    before = f"({len(second)} bytes before this stay on the cluster)\n"
    assert (copied.dir / "logs/rank-0.log").read_text() == f"{before}{rest}four"


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "logs/../record.json", "record.json", "outcome.json", "logs/rank-0.log/x", "job.sbatch"]
)
def test_no_other_file_is_written(copied, name):
    copied.tell(f"doc {name} {packed('x')} .", f"add {name} 0 {packed('x')} .")
    assert not [path for path in copied.dir.parent.rglob("*") if path.is_file()]


@pytest.mark.parametrize("line", ["job JobState=\x1b[2J", "hosts ../x", "record x"])
def test_a_state_that_cannot_be_read_is_that_hosts_fault(copied, line):
    with pytest.raises(BadAnswer):
        copied.tell(f"said {line}", "said .")


def test_a_host_that_says_no_end_of_a_state_fills_no_memory(copied):
    copied.tell(*[f"said job {number}" for number in range(1000)])
    assert len(copied._lines) < 20
