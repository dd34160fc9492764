"""Answers of hosts and containers are read part by part: a value within bounds, or a fault that names the part."""

import json
import math

import pytest

from deploy.core import fields
from deploy.core.errors import BadAnswer

NONE = object()


def read(reader, value):
    """The value that a reader returns, or NONE if it refuses."""
    try:
        return reader(value, "x")
    except BadAnswer:
        return NONE


@pytest.mark.parametrize(
    ("reader", "good", "bad"),
    [
        (fields.whole(3, least=1), [1, 2, 3], [0, 4, True, 1.0, "1", None]),
        (fields.whole(), [0, (1 << 63) - 1], [-1, 1 << 63]),
        (fields.real(2.0), [0.0, 2.0, 1], [-0.1, 2.1, True, "1", None, float("nan"), float("inf"), 10**400]),
        (fields.flag, [True, False], [0, 1, "true", None]),
        (fields.nothing, [None], [0, "", False]),
        (fields.text(3, "[a-z]*"), ["", "abc"], ["abcd", "A", 7, None]),
        (fields.text(3), ["", "A ü"], ["abcd", 7]),
        (
            fields.address,
            ["10.0.0.1", "fe80::1", "fe80::1%eth0"],
            ["10.0.0.1%eth0", "gpu-1", "fe80::1%", "fe80::1%a b", "fe80::1%" + "e" * 80, "::1%;", 7],
        ),
        (fields.interface, ["eth0", "eth0.5", "a" * 15], ["", "a" * 16, "a b", "$(x)", "a/b", "a\n"]),
        (fields.array(fields.whole(), 2), [[], [1, 2]], [[1, 2, 3], ["1"], (1,), {}]),
        (fields.row(fields.whole(), fields.text()), [[1, "a"]], [[1], [1, "a", 2], ["a", 1], None]),
        (fields.table(fields.text(2), fields.whole(), 1), [{}, {"ab": 1}], [{"a": 1, "b": 2}, {"abc": 1}, {"a": "1"}]),
        (fields.scalar, [True, 7, -7, 1.5, "a"], [None, [], {}, math.inf, 10**400, -(10**400)]),
        (fields.tree(2), [None, 1, "a", [1], {"a": [1]}, [[]]], [[[[1]]], {"a": {"b": {"c": 1}}}]),
        (fields.tree(2, 2), [[1, 2], {"a": 1, "b": 2}], [[1, 2, 3], {"a": 1, "b": 2, "c": 3}, {"a" * 201: 1}]),
    ],
)  # fmt: skip
def test_a_value_is_accepted_unchanged_or_refused(reader, good, bad):
    assert [read(reader, value) for value in good] == good
    assert [read(reader, value) for value in bad] == [NONE] * len(bad)


@pytest.mark.parametrize(
    ("reader", "texts"),
    [
        (fields.digits(99), {"0": 0, "99": 99, "100": NONE, "-1": NONE, "٣": NONE, "1.0": NONE, "": NONE}),
        (fields.digits(least=-5), {"-5": -5, "-6": NONE, "9" * 20: NONE}),
        (fields.decimal(), {"1.5": 1.5, "0": 0.0, "1e3": 1000.0, "2.": 2.0, "-1": NONE, "nan": NONE, "1e99": NONE}),
    ],
)  # fmt: skip
def test_a_number_in_ascii_digits_is_read_and_no_other_text(reader, texts):
    assert {text: read(reader, text) for text in texts} == texts
    assert read(reader, 1) is NONE


def test_texts_for_people_are_cut_and_lone_surrogates_replaced():
    assert fields.words(3)("abcdef", "x") == "abc"
    assert fields.text()("a\ud800", "x") == fields.words()("a\ud800", "x") == "a?"
    assert read(fields.words(), 7) is NONE


def test_a_fault_names_the_part_that_is_wrong():
    inner = fields.array(fields.record({"b": fields.whole()}))
    reader = fields.record({"a": inner}, {"t": fields.table(fields.text(), fields.flag)})
    faults = {"top.a": {}, "top.a[1].b": {"a": [{"b": 1}, {"b": "x"}]}, "top.t.k": {"a": [], "t": {"k": 1}}, "top": []}
    for part, value in faults.items():
        with pytest.raises(BadAnswer) as fault:
            reader(value, "top")
        assert fault.value.message.startswith(f"{part}: expected ")
    with pytest.raises(BadAnswer, match=r"^a: expected a value, got nothing"):
        reader({}, "")


def test_only_known_keys_of_an_object_are_used():
    given = {"a": 1, "b": "x", "more": 2, "long": "y" * 99, "odd": [], "n" * 101: 3}
    assert fields.record({"a": fields.whole()})(given, "") == {"a": 1}
    assert fields.record({"a": fields.whole()}, {"b": fields.text(), "c": fields.flag})(given, "") == {"a": 1, "b": "x"}
    others = fields.record({"a": fields.whole()}, others=fields.either(fields.whole(), fields.text(9)))(given, "")
    assert others == {"a": 1, "b": "x", "more": 2}
    many = {"a": 1, **{f"k{number}": number for number in range(500)}}
    assert len(fields.record({"a": fields.whole()}, others=fields.whole())(many, "")) == 100


def test_the_first_reader_that_accepts_a_value_wins_and_blanks_get_the_default():
    either = fields.either(fields.whole(), fields.text(like="[a-z]+"))
    assert [read(either, value) for value in (1, "a", "1")] == [1, "a", NONE]
    assert [fields.optional(fields.whole())(value) for value in (1, "a")] == [1, None]
    blank = fields.default(fields.whole(), 9, "N/A")
    assert [read(blank, value) for value in (None, "", "N/A", 1, "x")] == [9, 9, 9, 1, NONE]


def test_json_of_others_is_limited_in_length_depth_and_number_of_parts():
    assert fields.document('{"a": [1]}', "x") == fields.document(b'{"a": [1]}', "x") == {"a": [1]}
    deep = "[" * 50 + "]" * 50
    assert fields.document(deep, "x")
    wide_brackets = json.dumps([[] for _ in range(99)])
    assert len(fields.document(wide_brackets, "x")) == 99, "many brackets beside each other are not deep"
    assert fields.document("[1,2]", "x", most=5, parts=2) == [1, 2]
    for text, most, parts in (
        ("[1,2]", 4, 9), ("[1,2,3]", 99, 2), (b"[1,2,3]", 99, 2), ("[[],[]]", 99, 3), ("[" * 99 + "]" * 99, 999, 999),
        ("{", 99, 99), (b"\xff", 99, 99), ("[" * 100_000, 1 << 20, 1 << 20),
    ):  # fmt: skip
        with pytest.raises(BadAnswer, match=r"^x: expected "):
            fields.document(text, "x", most, parts)
    assert fields.json_object('{"a": 1}', "x") == fields.object_or_empty('{"a": 1}') == {"a": 1}
    assert fields.object_or_empty("[1]") == fields.object_or_empty("{") == {}
    with pytest.raises(BadAnswer, match="a JSON object, got a list"):
        fields.json_object("[]", "x")


def test_lines_of_a_word_and_a_value_are_grouped_by_word():
    assert fields.rows("a 1\nb\na 2 3 \n\x0bc\x85d e") == {"a": ["1", "2 3"], "b": [""], "\x0bc\x85d": ["e"]}
