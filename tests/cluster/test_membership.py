"""Who takes a lost host's place (`--spare`, `muster join`), who votes (`--arbiter`); after a cut one side trains."""

import time

import pytest

from lab import waiting
from tests import index
from tests.cluster.control import Control
from tests.cluster.going_on import SCRIPT, Run, script, train

NEVER = 1_000_000


@pytest.fixture
def start(wide_rack, tmp_path):
    """start(count, *words, more=1): deploy on `count` hosts of the rack; the next `more` do not train at first.

    After the test, each host is as it was before.
    """
    made = []

    def start(count, *words, more=1, **environment):
        hosts = {"hosts": wide_rack.hosts[:count], "more": wide_rack.hosts[count : count + more]}
        made.append(Run(wide_rack, tmp_path / "told", *words, **hosts, **environment))
        return made[-1]

    yield start
    for host in wide_rack.hosts:
        if not wide_rack.is_up(host):
            made[-1].boot(host)
        wide_rack.root(host, "sh", "-c", "iptables -F INPUT; iptables -F OUTPUT")
    for run in made:
        run.clean()


def test_a_spare_replaces_a_host_without_power_and_that_host_waits_when_it_is_back(start):
    run = start(3, *train(), "--spare", "rack-4", "--min-nodes", "3")
    first, second, third, spare = run.hosts
    run.until_trained()
    assert run.seen(spare) == []
    run.cut_power(second)
    run.until_said(f"{second} is lost; {spare} takes a free place: {first}, {third} and {spare} continue from step")
    run.until_trained()
    run.boot(second)
    run.told(second, '"after": 0')
    run.until_trained()
    run.rack.on(spare, f"docker kill muster-{run.run}")
    run.until_said(f"{spare} is lost; {second} is back: {first}, {second} and {third} continue from step")
    run.until_trained()
    run.stop_and_count()


def test_in_a_cut_between_two_hosts_and_a_host_with_a_spare_only_the_two_keep_training(start):
    run = start(3, *train(), "--spare", "rack-4", "--min-nodes", "2")
    first, second, third, spare = run.hosts
    run.until_trained()
    for host in (third, spare):
        run.part(host, (first, second))
    run.until_said(f"{first} and {second} continue from step")
    # The spare is on the other side, so neither side has a majority of all four hosts, or of those with a disk.
    for _ in range(3):
        run.until_trained()
    began = run.events("members")[-1]["t"]
    assert run.seen(spare) == [], "a host and a spare are no majority"
    # The third host may still have got samples for the step that was under way at the cut, but none after that.
    assert run.seen(third)[-1][1] < began + 1.0
    assert min(run.seen(host)[-1][1] for host in (first, second)) > began + 1.0
    run.until_ended(third)
    # Whichever of the two is reachable first takes the free place.
    run.part(third, (first, second), "D")
    run.until_said(f"{third} is back: {first}, {second} and {third} continue from step")
    run.part(spare, (first, second), "D")
    run.until_trained()
    run.stop_and_count()


def test_with_an_arbiter_either_of_two_hosts_can_train_alone(start):
    run = start(2, *train(), "--arbiter", "rack-3", "--min-nodes", "1")
    first, second, arbiter = run.hosts
    run.until_trained()
    run.cut_power(first)
    run.until_said(f"{first} is lost: {second} continues from step")
    run.until_trained()
    run.boot(first)
    run.until_said(f"{first} is back: {first} and {second} continue from step")
    run.until_trained()
    run.cut_power(arbiter)
    run.until_trained()
    run.boot(arbiter)
    waiting.until(lambda: len(run.containers()) == 3, "the arbiter's node", 60)
    run.rack.on(second, f"docker kill muster-{run.run}")
    run.until_said(f"{second} is lost: {first} continues from step")
    run.until_trained()
    assert run.seen(arbiter) == []
    run.stop_and_count()


def test_without_an_arbiter_one_node_of_two_is_refused_and_a_lone_host_waits(start, wide_rack):
    refused = Control(wide_rack).deploy("--min-nodes", "1", *train())
    assert refused.returncode == 2
    assert "of two with an arbiter" in refused.stderr
    run = start(2, *train(), more=0)
    first, second = run.hosts
    run.until_trained()
    run.cut_power(second)
    run.until_said(f"{second} (rank 1) is lost")
    # A step takes a tenth of a second.
    waiting.until(lambda: time.time() - run.seen(first)[-1][1] > 15, "the first host to wait", 60)


def test_a_lone_host_that_is_cut_off_stops_before_the_other_host_begins_with_the_arbiter(start):
    run = start(2, *train(NEVER), "--arbiter", "rack-3", "--min-nodes", "1")
    first, second, arbiter = run.hosts
    waiting.until(lambda: run.events("plan"), "a start", 120)
    run.cut_power(second)
    run.until_said(f"{second} is lost: {first} continues from step")
    run.boot(second)
    run.told(second, '"after": 0')  # it waits, since there is no checkpoint after which it could take part
    known = len(run.seen(second))
    run.part(first, (second, arbiter))
    waiting.until(lambda: len(run.seen(second)) > known, "the other host to train", 90)
    assert run.seen(first)[-1][1] < run.seen(second)[-1][0]


def test_a_new_host_joins_a_run_and_takes_the_place_of_one_that_leaves(start):
    run = start(3, *train(), "--min-nodes", "2")
    first, second, third, new = run.hosts
    run.until_trained()
    joined = run.fab("join", "--run", run.run, hosts=[new])
    assert joined.returncode == 0, joined.stderr
    run.told(new, '"after": 0')  # its ranks may begin
    run.until_trained()
    assert run.seen(new) == [], "no place is free"
    left = run.fab("leave", "--run", run.run, hosts=[second])
    assert left.returncode == 0, left.stderr
    run.until_said(f"{second} has left; {new} takes a free place: {first}, {third} and {new} continue from step")
    waiting.until(lambda: run.seen(new), "the newcomer to train", 60)
    run.until_trained()
    run.stop_and_count()


@pytest.fixture
def package_index(wide_rack, tmp_path):
    """The variables of a user with an index of one package; after the test, that package is removed from all hosts."""
    gateway = wide_rack.on(wide_rack.hosts[0], "ip route | awk '/^default/ {print $3}'")
    with index.serve(gateway, dict([index.wheel("plain", "1.0", "VALUE = 'plain'")])) as url:
        yield {"UV_DEFAULT_INDEX": url, "UV_HTTP_RETRIES": "0", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for host in wide_rack.hosts:
        wide_rack.on(host, "docker volume ls -q --filter label=muster.packages | xargs -r docker volume rm")


def test_a_new_host_joins_a_scripts_run_and_continues_from_files_that_the_others_kept(package_index, start, tmp_path):
    words = script(tmp_path / "code")
    (tmp_path / "code" / "requirements.txt").write_text("plain\n")
    (tmp_path / "code" / "train.py").write_text("import plain\n" + SCRIPT)
    run = start(3, *words, "--restarts", "1", "--min-nodes", "2", **package_index)
    first, second, third, new = run.hosts
    run.until_begun((first, second, third), 3)
    run.until_kept(second)
    joined = run.fab("join", "--run", run.run, hosts=[new])
    assert joined.returncode == 0, joined.stderr
    run.told(new, '"after": 0')
    assert run.begins(new) == [], "no place is free"
    run.cut_power(first)
    run.until_said(f"{first} is lost; {new} takes a free place: {second}, {third} and {new} start the script again")
    began = waiting.until(lambda: run.begins(new), "the newcomer's rank to begin", 90)[-1]
    assert began[0] > 0
    waiting.until(lambda: [run.begins(host)[-1] for host in (second, third)] == [began] * 2, "all to begin at one step")
    run.boot(first)
    run.told(first, '"after": 0')  # now this host waits for a free place
    assert run.fab("stop", "--run", run.run).returncode == 0
    assert run.followed.wait(90) == 75, run.log.read_text()
