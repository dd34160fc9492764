"""The status of the runs on a host, from its answer: known numbers, and no invented ones."""

import json

import pytest

from deploy.engine.engine import Container
from deploy.host import status
from deploy.host.commands import RUN_IN_CONTAINER
from deploy.report import tables

NOW = 1795238476


BEGAN = status.parse_time("2026-11-21T05:19:25Z")


def node(run, state="running", uptime="Up 3 minutes", created=BEGAN):
    labels = {"muster.run": run, "muster.node": "a", "muster.place": "0", "muster.command": "train.py --lr 3e-4"}
    code = int(uptime[8:].partition(")")[0]) if state == "exited" else None
    mounts = {RUN_IN_CONTAINER: f"/u/.muster/runs/{run}"}
    return Container("0" * 64, f"muster-{run}", labels, mounts, state, uptime, created, code)


def step(run, rank, number, t, **more):
    event = {"t": t, "kind": "step", "step": number, "steps": 600, "step_ms": 80.0, "rank": rank, **more}
    return f"event {run} {json.dumps(event)}"


def read(*parts):
    """Parse these containers and these lines of the host's answer; console lines begin with `line`."""
    containers = [part for part in parts if isinstance(part, Container)]
    lines = [part for part in parts if not isinstance(part, Container)]
    console = "".join(line.removeprefix("line r ") + "\n" for line in lines if line.startswith("line "))
    answer = "\n".join([f"time {NOW}", *lines]) + "\n"
    return status.parse(answer, containers, "/u", {"muster-r": console.encode()})


def test_the_slowest_rank_determines_the_step_of_a_node():
    plan = json.dumps({"kind": "plan", "batch": 96})
    host_status = read(node("r"), step("r", 0, 230, NOW - 3), step("r", 0, 240, NOW - 2), step("r", 1, 239, NOW - 4))
    (node_status,) = host_status.nodes
    assert (node_status.step, node_status.steps, node_status.step_age_s) == (239, 600, 2.0)
    assert node_status.batch is None
    (with_plan,) = read(node("r"), step("r", 0, 240, NOW), f"event r {plan}").nodes
    assert status.rate(with_plan, with_plan.batch) == pytest.approx(96 / 0.080)


def test_the_batch_size_that_rank_0_reports_gives_every_host_its_rate():
    plan = json.dumps({"kind": "plan", "batch": 96})
    first = read(node("r"), step("r", 0, 240, NOW), f"event r {plan}")
    second = read(node("r"), step("r", 1, 240, NOW))
    rates = [row[4] for row in tables.status_rows({"a": first, "b": second})]
    assert rates == ["1,200 samples/s"] * 2
    (alone,) = tables.status_rows({"b": second})
    assert alone[4] == "12.5 steps/s"


def test_a_users_script_is_shown_with_its_last_line_and_uptime():
    """Empty lines, and lines that only frame others, are not shown as the last line."""
    lines = ("line r 2026-11-21T05:21:14.5Z epoch 1\r 10%\r 20%", "line r 2026-11-21T05:21:15.5Z =====")
    host_status = read(node("r"), *lines, "line r 2026-11-21T05:21:15.6Z ")
    (row,) = tables.status_rows({"a": host_status})
    assert row == ("a", "r", "up 3 minutes", "", "", "no GPU", " 20%")


def test_a_quiet_run_shows_how_long_it_has_been_quiet():
    host_status = read(node("r"), step("r", 0, 240, NOW - 90), "line r 2026-11-21T05:19:46.000000000Z loss 0.1")
    (row,) = tables.status_rows({"a": host_status})
    assert row[3] == "step 240/600 (1:30 ago)"
    assert row[6] == "loss 0.1 (1:30 ago)"


@pytest.mark.parametrize(
    ("uptime", "verdict", "words"),
    [
        ("Exited (0) 5 minutes ago", "done", "done 5 minutes ago"),
        ("Exited (75) 5 minutes ago", "stopped", "stopped 5 minutes ago"),
        ("Exited (3) 5 minutes ago", "", "failed (code 3) 5 minutes ago"),
        ("Exited (137) 5 minutes ago", "", "failed (was killed by SIGKILL) 5 minutes ago"),
        ("Exited (1) 5 minutes ago", "done", "failed (code 1) 5 minutes ago"),
    ],
)
def test_the_verdict_and_the_exit_code_tell_how_a_node_ended(uptime, verdict, words):
    rows = [node("r", "exited", uptime)]
    rows += [f"verdict r {json.dumps({'verdict': verdict, 'code': 0})}"] if verdict else []
    (row,) = tables.status_rows({"a": read(*rows)})
    assert row[2] == words


def test_running_nodes_are_listed_before_ended_ones():
    ended = node("old", "exited", "Exited (0) 1 second ago", BEGAN + 3000)
    assert [node_status.run for node_status in read(ended, node("new")).nodes] == ["new", "old"]


def test_torn_and_foreign_lines_change_nothing():
    noise = ["event r {torn", "event r 7", 'event r {"kind": "step"}', "verdict r []", "strange"]
    (node_status,) = read(node("r"), *noise).nodes
    assert (node_status.step, node_status.verdict) == (None, "")


def test_another_users_node_shows_its_user_and_none_of_our_steps():
    foreign = node("r")._replace(mounts={RUN_IN_CONTAINER: "/v/.muster/runs/r"})
    foreign.labels["muster.user"] = "bob"
    (node_status,) = read(foreign, step("r", 0, 240, NOW)).nodes
    assert (node_status.user, node_status.step) == ("bob", None)
    foreign.labels["muster.place"] = "²"
    assert read(foreign).nodes == ()


def test_a_host_that_is_not_part_of_the_run_is_shown_as_such():
    (row,) = tables.status_rows({"a": read(node("r"))}, "other")
    assert row[:3] == ("a", "", "not of this run")
    (value,) = tables.status_values({"a": read()})
    assert (value["host"], value["run"]) == ("a", None)


def test_a_run_on_several_hosts_is_listed_once_with_the_state_of_its_worst_node():
    done, failed = json.dumps({"verdict": "done"}), json.dumps({"verdict": "failed"})
    host_status = {
        "a": status.parse_runs(f"folder r 1000 20 00003146\nverdict r {done}\nfolder older 500 4 \n"),
        "b": status.parse_runs(f"folder r 1200 10 \nverdict r {failed}\n", [node("now")], "/u"),
    }
    older, run, now = sorted(tables.run_values(host_status), key=lambda value: value["changed"] or 9e9)
    assert (run["state"], run["hosts"], run["checkpoint"]) == ("failed", ["a", "b"], 3146)
    assert (run["bytes"], run["changed"]) == (30 * 1024, 1200.0)
    assert (older["run"], older["state"], older["checkpoint"]) == ("older", "unfinished", None)
    assert (now["run"], now["state"], now["hosts"]) == ("now", "running", ["b"])


@pytest.mark.parametrize(("known", "words"), [(False, "step 20/600 (including repeated steps)"), (True, "step 20/600")])
def test_a_step_count_that_includes_repeats_says_so(known: bool, words: str) -> None:
    event = {"t": NOW - 9, "kind": "continues", "rank": 0, "node": "a", "step": 12, "before": 12, "known": known}
    (row,) = tables.status_rows({"a": read(node("r"), step("r", 0, 20, NOW), f"event r {json.dumps(event)}")})
    assert row[3] == words


def test_the_step_of_a_node_is_from_its_current_start():
    """The folder also has the events of the rank that the host had before the run was resumed on other hosts."""
    before, now = step("r", 1, 82, BEGAN - 40), step("r", 0, 255, NOW - 2)
    (node_status,) = read(node("r"), before, now).nodes
    assert node_status.step == 255


@pytest.mark.parametrize(
    ("age", "count", "shown"),
    [
        (9, 1, "12.5 steps/s"),
        (26, 1, "no step for 26 s"),
        (95, 400, "12.5 steps/s"),
        (105, 400, "no step for 1 min 45 s"),
    ],
)
def test_an_outdated_rate_is_not_shown_as_the_current_one(age, count, shown):
    """Each report covers `count` steps: with 400 steps of 80 ms, one comes every 32 s."""
    rows = tables.status_rows({"a": read(node("r"), step("r", 0, 59, NOW - age, count=count))})
    assert rows[0][4] == shown
