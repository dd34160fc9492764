"""Damages correct answers: in their JSON, words, lines or bytes."""

from __future__ import annotations

import json
import re

ODD_TEXT = (
    "", " ", "x", "²", "٣", "-", "--help", "..", "../../.ssh/id", "/etc/passwd", "a b", "$(id)", "`id`", "\x00",
    "\x1b[2J", "\u202e", "\u2028", "é" * 300, "x" * 5000, "9" * 5000, "-1", "0", "1e999", "nan", "inf", "0x10", "1_000",
    "+1", "1.2.3", "latest", "{}", "[]", "null", "true", "fe80::1%eth0", "::1", "999.1.1.1", "10.0.0.1", "10.0.0.1%lo",
    "None", "[N/A]", "2026-13-45T99:99:99Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "9" * 20, "\ud800",
    "sha256:" + "0" * 64, "sha256:zz", "%s%s", "{0}", "\\", "'", '"', "\t", "\r", "Exited (99999999999)", "a" * 70000,
)  # fmt: skip
ODD_JSON = (
    None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, -1e308, 2**31, 2**63, 2**64, -(2**63), 10**400, [], {}, [[]], [{}],
    {"": 0},     {"a": None}, [None], ["a"], [1, 2], {"error": "timeout"}, {"error": []}, *ODD_TEXT,
)  # fmt: skip
# JSON text that json.dumps does not write.
RAW = (
    "NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "-" + "9" * 5000, "[" * 100000, '{"a":' * 5000,
    "[" * 900 + "]" * 900, '"\\ud800"', '"\\u0000"', '"' + "y" * 200000 + '"', "[" + "0," * 50000 + "0]",
)  # fmt: skip
MOST = 1 << 20
HOLE = "@raw@"
_MARK = f'"{HOLE}"'


def mutated(data, random, others=()):
    """`data` (bytes) with one to four changes; `others`: samples from which lines may be taken."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        data = random.choice(_WAYS)(data, random, others)[:MOST]
    return data


def _json(data, random, others):
    """Change a value, a key or an entry somewhere in a JSON document."""
    text = data.decode(errors="replace")
    lines = text.split("\n")
    places = [number for number, line in enumerate(lines) if "{" in line or "[" in line]
    if not places:
        return _word(data, random, others)
    place = random.choice(places)
    match = re.search(r"[\[{]", lines[place])
    head, tail = lines[place][: match.start()], lines[place][match.start() :]
    try:
        value = json.loads(tail)
    except (ValueError, RecursionError):
        return _word(data, random, others)
    raw = random.choice(RAW) if random.random() < 0.2 else None
    value = changed(value, random, HOLE if raw else random.choice(ODD_JSON))
    lines[place] = head + json.dumps(value).replace(_MARK, raw or _MARK)
    return "\n".join(lines).encode(errors="replace")


def changed(value, random, odd):
    """`value` with `odd` in place of some part of it, or without that part."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.08:
        return odd
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = random.choice(list(keys))
    value = value.copy()
    if random.random() < 0.12:
        del value[key]
    elif random.random() < 0.08 and isinstance(value, dict):
        value[odd if isinstance(odd, str) else "x"] = value.pop(key)
    elif random.random() < 0.08 and isinstance(value, list):
        value += value * (40 if len(json.dumps(value)) < 2000 else 1)
    else:
        value[key] = changed(value[key], random, odd)
    return value


def _word(data, random, others):
    """Change a word, or something that looks like a number."""
    words = re.split(rb"([ \n,:;=/|]+)", data)
    place = random.randrange(0, len(words), 2)
    odd = random.choice(ODD_TEXT).encode(errors="surrogatepass")
    words[place] = random.choice((odd, odd, odd, words[place] + odd, odd + words[place], words[place][::-1], b""))
    return b"".join(words)


def _line(data, random, others):
    """Remove, duplicate, repeat, cut or shuffle lines, or insert one from another answer."""
    lines = data.split(b"\n")
    place = random.randrange(len(lines))
    way = random.randrange(6)
    if way == 0:
        del lines[place]
    elif way == 1:
        lines.insert(random.randrange(len(lines) + 1), lines[place])
    elif way == 2:
        lines[place:place] = [lines[place]] * random.choice((10, 300 if len(data) < MOST >> 6 else 1))
    elif way == 3:
        lines[place] = lines[place][: random.randrange(len(lines[place]) + 1)]
    elif way == 4:
        random.shuffle(lines)
    elif others:
        lines.insert(place, random.choice(random.choice(others).split(b"\n")))
    return b"\n".join(lines)


def _bytes(data, random, others):
    """Change some bytes."""
    if not data:
        return bytes(random.randrange(256) for _ in range(random.randrange(20)))
    start = random.randrange(len(data))
    end = min(len(data), start + random.choice((0, 1, 1, 2, 8, 100)))
    middle = bytes(random.randrange(256) for _ in range(random.choice((0, 1, 1, 2, 4))))
    return data[:start] + random.choice((middle, data[start:end] * 3, b"", b"\xff", b"\n", b" ")) + data[end:]


_WAYS = (_json, _json, _json, _json, _word, _word, _word, _line, _line, _bytes)
