"""No value of a secret is in what a node shows, however the pieces of the stream fall."""

from __future__ import annotations

import base64
import json
import random
from urllib.parse import quote, quote_plus

import pytest

from trainer.watch.mask import SHOWN, Mask

KEY = "sk-4711-sesame-open"
LONG = KEY + "-and-more"
PEM = "-----BEGIN THING-----\nabcdefghijkl\nmnopqrstuvwx\n"


def masked(stream, hidden, cuts=()):
    mask, shown, at = Mask(hidden), b"", 0
    for cut in [*cuts, len(stream)]:
        shown += mask.take(stream[at:cut])
        at = cut
    return shown + mask.rest()


@pytest.mark.holds("secrets-masked")
def test_a_value_is_hidden_wherever_the_stream_is_cut():
    stream = f"a {KEY} b {LONG} c sk-4711 {KEY}{KEY}\n".encode()
    whole = masked(stream, [KEY, LONG])
    assert whole == b"a *** b *** c sk-4711 ******\n"
    for cut in range(len(stream)):
        assert masked(stream, [KEY, LONG], [cut]) == whole
    source = random.Random(7)
    for _ in range(300):
        cuts = sorted(source.sample(range(len(stream)), 9))
        assert KEY.encode() not in masked(stream, [KEY, LONG], cuts)


def test_each_line_of_a_value_with_several_is_hidden_and_short_values_are_left():
    assert b"abcdefghijkl" not in masked(b"one abcdefghijkl two\n", [PEM])
    assert PEM.encode().strip() not in masked(PEM.encode(), [PEM])
    assert masked(b"short pw\n", ["pw", ""]) == b"short pw\n"


@pytest.mark.parametrize("before", range(4))
def test_a_value_is_hidden_as_urls_strings_and_headers_write_it(before):
    value = "pa/ss+word 'x' \"12\" \u00e9"
    login = b"u" * before + value.encode() + b"tail"
    for text in (quote(value, safe=""), quote(value), quote_plus(value), repr({"a": value}), json.dumps([value])):
        assert masked(f"see {text} there".encode(), [value]).count(SHOWN) == 1
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        shown = masked(b"Basic " + encode(login), [value])
        assert SHOWN in shown
        assert len(shown) < 35, "at most a few letters at its ends are left"


def test_without_secrets_nothing_waits_and_with_them_only_what_may_be_one():
    assert Mask([]).take(b"sk-4711") == b"sk-4711"
    mask = Mask([KEY])
    assert mask.take(b"step 1: loss 0.5\n") == b"step 1: loss 0.5\n"
    assert mask.take(b"see sk-47") == b"see "
    assert mask.take(b"12\n") == b"sk-4712\n"
    assert mask.take(b"x sk-4711") + mask.rest() == b"x sk-4711"
    assert SHOWN == b"***"
