"""A node shows no value of a secret, however the value is written and wherever the stream is cut into pieces."""

from __future__ import annotations

import base64
import html
import json
import random
from urllib.parse import quote, quote_plus

import pytest

from lab import waiting
from trainer.node.rank.mask import FEW, SHOWN, Mask

KEY = "sk-4711-sesame-open"
LONG = KEY + "-and-more"
PEM = "-----BEGIN THING-----\nabcdefghijkl\nmnopqrstuvwx\n"
ODD = "pa/ss+word 'x' \"12\" \u00e9"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def masked(stream, hidden, cuts=(), pauses=()):
    """Return what a stream in these pieces shows; after a pause, also what may be shown although nothing follows."""
    mask, shown, at = Mask(hidden), b"", 0
    for cut in [*cuts, len(stream)]:
        shown += mask.take(stream[at:cut])
        shown += mask.settle() if cut in pauses else b""
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


def test_only_text_that_may_be_a_secret_is_held_back():
    assert Mask([]).take(b"sk-4711") == b"sk-4711"
    mask = Mask([KEY])
    assert mask.take(b"step 1: loss 0.5\n") == b"step 1: loss 0.5\n"
    assert mask.take(b"see sk-47") == b"see "
    assert mask.take(b"12\n") == b"sk-4712\n"
    assert mask.take(b"x sk-4711") + mask.rest() == b"x sk-4711"
    assert SHOWN == b"***"


# The ways in which programs write a value, some with other text around it.


def in_base64(text, source):
    return base64.b64encode(("x" * source.randrange(4) + text + "y" * source.randrange(4)).encode()).decode()


def in_lines(text, width, end):
    return end.join(text[at : at + width] for at in range(0, len(text), width))


def each(text, write):
    return "".join(letter if letter.isascii() and letter.isalnum() else write(letter) for letter in text)


def in_hex(text):
    return each(text, lambda letter: "".join(f"%{byte:02x}" for byte in letter.encode()))


def coloured(text, source):
    return "".join(f"\x1b[3{source.randrange(8)}m{letter}\x1b[0m" for letter in text)


WAYS = {
    "as it is": lambda text, _: text,
    "URL": lambda text, _: quote(text, safe=""),
    "path of a URL": lambda text, _: quote(text),
    "form": lambda text, _: quote_plus(text),
    "lower hex": lambda text, _: in_hex(text),
    "all of it in hex": lambda text, _: "".join(f"%{byte:02X}" for byte in text.encode()),
    "URL in a URL": lambda text, _: quote(quote(text, safe=""), safe=""),
    "JSON": lambda text, _: json.dumps({"key": text}),
    "JSON of JavaScript": lambda text, _: json.dumps(text).replace("/", "\\/"),
    "JSON in JSON": lambda text, _: json.dumps(json.dumps(text)),
    "numbers of letters": lambda text, _: each(text, lambda letter: f"\\u{ord(letter):04x}"),
    "all of it as numbers": lambda text, _: "".join(f"\\u{ord(letter):04X}" for letter in text),
    "repr": lambda text, _: repr({"key": text}),
    "repr of bytes": lambda text, _: repr(text.encode()),
    "octal": lambda text, _: "".join(f"\\{byte:03o}" for byte in text.encode()),
    "HTML": lambda text, _: html.escape(text),
    "HTML by numbers": lambda text, _: each(text, lambda letter: f"&#x{ord(letter):X};"),
    "HTML by decimal numbers": lambda text, _: "".join(f"&#{ord(letter)};" for letter in text),
    "colour of each letter": coloured,
    "colour in a URL": lambda text, source: coloured(in_hex(text), source),
    "link": lambda text, _: f"\x1b]8;;https://u:{quote(text)}@host/\x1b\\here\x1b]8;;\x1b\\",
    "link between letters": lambda text, _: text[:6] + "\x1b]8;;http://x/\x07" + text[6:] + "\x1b]8;;\x07",
    "redraw": lambda text, _: text[:5] + "\r" + text[5:],
    "letters nobody sees": lambda text, _: "\u200b".join(text),
    "UTF-16": lambda text, _: "\x00".join(text),
    "base64": in_base64,
    "base64 of URLs": lambda text, source: in_base64(text, source).translate({43: "-", 47: "_"}),
    "base64 in JSON": lambda text, source: json.dumps(in_lines(in_base64(text, source), 20, "\n")),
    **{
        f"base64, {width} letters a line, {end!r}": lambda text, source, width=width, end=end: in_lines(
            in_base64("h" * 45 + text, source), width, end
        )
        for width in (20, 64, 76)
        for end in ("\n", "\r\n", "\n    ", "\n[rank1]: ", "\n[default3]:")
    },
    "name": lambda text, _: "f_" + each(text, lambda _: "_"),
    "name with lines": lambda text, _: each(text, lambda _: "-"),
    "capitals": lambda text, _: text.upper() if text.isascii() else text,
}


def drawn(source):
    """A random value such as services and people make."""
    size = source.randint(8, 80)
    letters = "".join(source.choices(LETTERS, k=size)) if source.random() < 0.5 else ""
    odd = source.choices(LETTERS + "/+-_=.:@!#$&%*\\'\" \u00e9", k=size)
    return (letters or "".join(odd)).strip().ljust(8, "x")


@pytest.mark.holds("secrets-masked")
@pytest.mark.parametrize("way", WAYS)
def test_a_value_is_hidden_in_each_way_of_writing_and_between_any_writes_and_pauses(way):
    source = random.Random(way)
    values = [KEY, ODD, "hf_" + LETTERS[5:40], *(drawn(source) for _ in range(3))]
    for value in values:
        written = f"at 50% {WAYS[way](value, source)} end\n".encode()
        for cuts in [(), range(1, len(written)), sorted(source.choices(range(len(written)), k=4))]:
            pauses = [cut for cut in cuts if source.random() < 0.5]
            shown = masked(written, [value, "another" + value[:4]], cuts, pauses)
            assert SHOWN in shown, (value, cuts, pauses, shown)
            assert shown.startswith(b"at 50% ")
            assert shown.endswith(b" end\n")
            if way == "as it is":  # half a value is shown only in a whole line, and here is none
                assert len(shown) - len(b"at 50% *** end\n") <= FEW


@pytest.mark.holds("secrets-masked")
def test_after_a_pause_a_few_letters_are_seen_and_the_rest_is_hidden_when_it_comes():
    mask = Mask([KEY])
    assert mask.take(b"key sk-") + mask.settle() == b"key sk-", "a line does not stall"
    assert mask.take(b"4711") + mask.settle() == b""
    assert mask.take(b"-sesame-op") + mask.settle() + mask.settle() == b""
    assert mask.take(b"en\nnext\n") == b"***\nnext\n"
    assert mask.take(b"sk") + mask.settle() + mask.take(b"ate\n") == b"skate\n"
    assert mask.take(b"so far sk-4711-sesame-o") + mask.rest() == b"so far ***"


@pytest.mark.holds("secrets-masked")
@pytest.mark.parametrize("other", ["e-----------", "me-and-others-too"])
def test_the_larger_part_of_a_value_is_hidden_at_the_end_though_it_may_be_the_beginning_of_another(other):
    assert masked(b"so far sk-4711-sesame", [KEY, other]) == b"so far ***"


def test_a_whole_line_is_shown_after_a_pause_though_its_end_may_continue_below():
    mask = Mask(["0123456789abcdef"])
    assert mask.take(b"loss 0\n") == b"loss 0\n"
    assert mask.take(b"loss 0.012345\n") == b"loss 0."
    assert mask.settle() == b"012345\n"
    assert mask.take(b"6789abcdef\n") == b"***\n"


def test_a_long_value_is_hidden_whole_and_so_is_a_long_part_of_it():
    value = "".join(random.Random(5).choices(LETTERS, k=2000))
    for cuts in ((), (700, 701, 1500)):
        assert masked(f"x {value} y\n".encode(), [value], cuts).replace(SHOWN, b"") == b"x  y\n"
    assert value[600:900] not in masked(f"x {value[400:1600]} y".encode(), [value]).decode()


@pytest.mark.holds("secrets-masked")
def test_a_long_value_without_its_last_letters_is_hidden_wherever_the_stream_is_cut():
    stream = f"a {KEY[:-3]}... {KEY[:-1]}x {KEY[:12]} {KEY[:-2]}\n".encode()
    whole = masked(stream, [KEY])
    assert whole == b"a ***... ***x sk-4711-sesa ***\n"
    for cut in range(len(stream)):
        assert masked(stream, [KEY], [cut]) == whole
        assert b"-open" not in masked(stream, [KEY], [cut], [cut])
        assert b"sk-4711-sesame" not in masked(stream, [KEY], [cut], [cut])
    assert masked(b"x 0123456789abc y", ["0123456789abcde"]) == b"x 0123456789abc y"


def test_colours_stay_where_a_value_is_hidden():
    assert masked(f"\x1b[31mkey {KEY[:4]}\x1b[1m{KEY[4:]}\x1b[0m.".encode(), [KEY]) == b"\x1b[31mkey ***\x1b[1m\x1b[0m."


def test_values_that_overlap_are_hidden_as_one():
    assert masked(b"x abcdefghijklmno y", ["abcdefghij", "ghijklmno"]) == b"x *** y"


def test_a_value_of_nearly_all_punctuation_is_hidden_but_no_line_of_a_table_is():
    assert masked(b"=========== ----------- x", ["-----------"]) == b"=========== *** x"
    assert masked(b"$%^&*()_+ab", ["$%^&*()_+a"]) == b"***b"


BEGINNINGS = ["%2", "\\u00", "\x1b[3", "\x1b", "\x1b]8;;", "\n", "\r", "  \n", "\x1b[31m", "50%", "&am", "%25", "\\\\"]
BEGINNINGS += ["[rank0]: ", "\u00e9", "\u2588", "\0"]


@pytest.mark.holds("secrets-masked")
def test_a_value_of_punctuation_is_hidden_wherever_the_stream_is_cut():
    value = "!-_%$#@!-_%$"
    stream = f"| a | {value} | b |\n".encode()
    for cut in range(len(stream)):
        assert masked(stream, [value], [cut]) == b"| a | *** | b |\n"


@pytest.mark.holds("secrets-masked")
@pytest.mark.parametrize("write", [str.lower, str.upper, str.title])
def test_a_value_in_a_long_text_that_has_no_other_letter_of_it_is_hidden(write):
    key = "zqjx-kvwy-bgfm"
    lines = b"1 2 3 4 5 6 7 8 9 0\n" * 10_000
    shown = masked(lines + f"{write(key)}\n".encode() + lines, [key])
    assert shown == lines + b"***\n" + lines


def test_undecodable_bytes_around_a_value_stay_as_they_are():
    assert Mask([KEY]).text(f"a\udcff {KEY} b") == "a\udcff *** b"
    assert Mask([KEY]).text(f"a\ud800 {KEY} b") == "a? *** b", "half a letter, as a script's JSON may have it"


def test_text_without_a_value_passes_as_it_is_and_in_order():
    source = random.Random(11)
    for _ in range(150):
        value = drawn(source)
        parts = [value[: len(value) // 2], "word ", *BEGINNINGS]
        text = "".join(source.choices(parts, k=40)).encode() + source.randbytes(9)
        cuts = sorted(source.choices(range(len(text)), k=30))
        shown, mask, at = b"", Mask([value]), 0
        for cut in [*cuts, len(text)]:
            shown += mask.take(text[at:cut]) + (mask.settle() if source.random() < 0.5 else b"")
            assert text.startswith(shown) or SHOWN in shown
            at = cut
        shown += mask.rest()
        # Two halves may form a whole value.
        assert shown == text or SHOWN in shown


TOKENS = "a\x1b[31m|\x1b[|\x1b]8;;a|\x1bM|\x1b|%41|%73k|%|25|\\|\\/|\\x73k|&#115;|&|\n|\n | |\u200b|s\0|\r"
TOKENS += "|\n[a1]:|\n[aaaaaaaaaa"
CRAFTED = [
    *TOKENS.split("|"),
    "\udce2",
    KEY,
    KEY[:-1],
    in_hex(KEY),
    "\x1b[m".join(KEY),
    "".join(f"%{ord(x):x}" for x in KEY),
]


@pytest.mark.parametrize("part", CRAFTED)
def test_no_crafted_text_takes_long_or_is_held_back(part):
    size = 1 << 17
    text = KEY[:-1].encode() + (part.encode(errors="surrogateescape") * size)[:size]
    mask = Mask([KEY, LETTERS * 9, *(drawn(random.Random(number)) for number in range(5))])
    with waiting.spending_little():
        for at in range(0, len(text), 4096):
            mask.take(text[at : at + 4096])
    assert len(mask.rest()) < 1 << 16
