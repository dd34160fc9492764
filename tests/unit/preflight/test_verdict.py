"""The JSON of a preflight (`--json`), and how a verdict is composed."""

import json

from deploy.causes.finding import UNKNOWN, WARNING, find
from deploy.preflight.verdict import Verdict, odd_ones

FAULT = find("rendezvous-dropped", ("b",), "b lets no call in", fix="sudo ufw allow 29500", evidence=("b: DROP",))
DOUBT = find("not-known", ("a",), "calls fail", level=UNKNOWN)
HINT = find("clock-skew", ("c",), "c is 90 s ahead", level=WARNING)


def test_the_json_has_what_a_person_is_shown_and_where_to_read_more():
    told = Verdict(
        (HINT, FAULT), {"ports": "fault"}, ("a", "b"), 3.5, "hosts", not_rehearsed="not asked", network="eth1"
    )
    read = json.loads(json.dumps(told.json()))
    assert (read["ok"], read["cause"], read["hosts"]) == (False, "rendezvous-dropped", ["b"])
    assert [(each["cause"], each["fix"], each["evidence"]) for each in read["findings"]] == [
        ("clock-skew", HINT.fix, []), ("rendezvous-dropped", "sudo ufw allow 29500", ["b: DROP"])
    ]  # fmt: skip
    assert read["findings"][1]["docs"].endswith("#rendezvous-dropped")
    assert (read["groups"], read["examined"], read["seconds"], read["where"]) == (
        {"ports": "fault"}, ["a", "b"], 3.5, "hosts"
    )  # fmt: skip
    assert (read["rehearsed"], read["not_rehearsed"], read["unexplained"], read["network"]) == (
        "", "not asked", [], "eth1"
    )  # fmt: skip


def test_warnings_alone_are_ok_and_doubts_come_after_faults():
    assert Verdict((HINT,)).ok
    assert Verdict((HINT,)).cause == ""
    assert not Verdict((DOUBT,)).ok
    assert [Verdict(of).first for of in ((DOUBT, FAULT), (DOUBT, HINT), (HINT,))] == [FAULT, DOUBT, None]


def test_the_odd_hosts_are_named_if_most_agree_and_all_hosts_if_not():
    assert odd_ones({"a": "1", "b": "2", "c": "1"}) == ("b",)
    assert odd_ones({"a": "1", "b": "2"}) == ("a", "b")
    assert odd_ones({"a": "1", "b": "1", "c": "2", "d": "3"}) == ("a", "b", "c", "d")
    assert odd_ones({"a": "1", "b": "1"}) == ()
