"""The page of a preflight: what it says, that hosts' text is escaped, and that it loads nothing else."""

import dataclasses
import re
from html.parser import HTMLParser

import pytest

from deploy.causes.finding import Finding
from deploy.host.reached import NoAnswer
from deploy.preflight import Answers, judge
from deploy.preflight.answers import Link, pairs
from deploy.report import preflight_text
from deploy.report.page import preflight, render
from lab.answers import HOSTS, answers, facts

NASTY = '<script>alert("x")</script> & \ud800'


class Reader(HTMLParser):
    """A parsed page: the text of each kind of element, and the classes of cells."""

    def __init__(self, page):
        super().__init__()
        self.open, self.text, self.cells, self.wanted = [], {}, [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.wanted += [value for name, value in attributes if name in ("src", "href", "action", "data")]
        if tag == "td" and given.get("title"):
            self.cells.append((given["title"], given.get("class", "")))
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in set(self.open):
            self.text.setdefault(tag, []).append(data)


def page(seen, more=()):
    return preflight.build(seen, judge(seen, more))


def rated(seen, slow):
    """The same answers with a rate for every pair: 1000 Mbit/s, but a tenth for the slow one."""
    rates = {pair: 100 if pair == slow else 1000 for pair in pairs(seen.hosts_with_facts)}
    more = tuple(
        Link(*pair, "", 1, ("bandwidth",), "ok", host=pair[1], size=8 << 20, rate=int(rate * 1e6 / 8))
        for pair, rate in rates.items()
    )
    return dataclasses.replace(seen, links=(*seen.links, *more))


@pytest.mark.parametrize("told", [{"not_rehearsed": "--quick leaves it out"}, {"rehearsed": "2 ranks met"}, {}])
def test_the_page_promises_exactly_what_the_console_promises(told):
    verdict = dataclasses.replace(judge(answers()), **told)
    shown = " ".join("".join(Reader(preflight.build(answers(), verdict)).text["body"]).split()).lower()
    *_, line = preflight_text.lines_of(verdict, "gloo")
    assert all(words.strip() in shown for words in re.split("  +|: ", line.lower(), maxsplit=1))
    assert ("will find each other" in shown) == ("not_rehearsed" not in told)


def test_a_fault_is_shown_with_its_evidence_symptom_and_a_fix_to_copy():
    seen = answers(outcome=lambda s, t, k: "dropped" if (k, t) == ("data", "b") else "ok")
    verdict, reader = judge(seen), Reader(page(seen))
    assert "Not ready" in "".join(reader.text["header"])
    assert verdict.first.text in reader.text["header"]
    where, command = verdict.fix.partition("   (")[0].split(": ", 1)
    assert (f"Fix {where}" in reader.text["span"], command in reader.text["code"]) == (True, True)
    assert {*verdict.first.evidence, verdict.first.symptom} <= {*"\n".join(reader.text["dd"]).split("\n")}


@pytest.mark.parametrize("fix", ["on a: sudo x; on b: sudo y", "check the spelling, or give its IP; `ssh -G a`", "y"])
def test_a_fix_that_is_no_single_command_is_shown_whole(fix):
    finding = Finding("ssh", "hosts", ("a",), "a: no", fix=fix)
    assert fix in Reader(page(answers(), [finding])).text["code"]


def test_the_matrix_has_every_pair_and_marks_those_that_failed():
    seen = answers(outcome=lambda s, t, k: "dropped" if (k, t) == ("data", "b") else "ok")
    cells = dict(Reader(page(seen)).cells)
    assert len(cells) == len(pairs(HOSTS))
    assert {title for title, kind in cells.items() if kind == "fault"} == {
        f"{host} → b: data ports: no answer in 2.2 s" for host in ("a", "c")
    }


def test_in_a_terminal_each_column_is_below_its_host():
    """This holds however short the names are, and however long the text for a pair is."""
    seen = rated(answers(), (HOSTS[0], HOSTS[1]))
    for lines, unknown in ((preflight_text.matrix(seen), "-"), (preflight_text.heat(seen), "-")):
        tables = [lines[at : at + len(HOSTS) + 1] for at in range(0, len(lines), len(HOSTS) + 1)]
        for head, *rows in tables:
            places = [head.index(f" {host} ") + 1 for host in HOSTS]
            for host, row in zip(HOSTS, rows, strict=True):
                assert row.startswith(f"from {host}")
                assert all(row[place] != " " and row[place - 1] == " " for place in places)
                assert row[places[HOSTS.index(host)]] == unknown
    assert " 100 █ " in preflight_text.heat(seen)[1]
    assert preflight_text.heat(answers()) == []


def test_rates_are_drawn_with_the_slow_pair_darkest():
    html = page(rated(answers(), ("a", "b")))
    shades = {title: float(shade) for shade, title in re.findall(r"--slow:([\d.]+)\" title=\"([^\"]+)", html)}
    assert shades.pop("a &#8594; b: 100 Mbit/s") == pytest.approx(0.9)
    assert set(shades.values()) == {0.0}
    assert "How fast" not in page(answers())


def test_a_host_that_did_not_answer_has_a_row_with_the_reason():
    seen = answers()
    seen = dataclasses.replace(seen, hosts=(*HOSTS, "d"), faults={"d": NoAnswer("ssh", "d: connection refused")})
    reader = Reader(page(seen))
    assert "d: connection refused" in reader.text["td"]
    assert all("d" not in title.split(": ")[0].split(" → ") for title, _ in reader.cells)


def test_a_page_without_any_answers_is_complete():
    seen = Answers(answers().request, ("a",), faults={"a": NoAnswer("ssh", "a: connection refused")})
    assert "Not ready" in page(seen)


def test_with_only_one_host_answering_the_links_could_not_be_judged():
    whole, lost = answers(), {host: NoAnswer("ssh-refused", f"{host}: connection refused") for host in HOSTS[1:]}
    alone = dataclasses.replace(whole, facts={"a": whole.facts["a"]}, links=(), faults=lost, clocks={})
    groups = judge(alone).groups
    assert (groups["names"], groups["links"], groups["mtu"], groups["clocks"]) == ("ok", *["could not tell"] * 3)


def test_a_hosts_text_is_escaped_and_nothing_is_loaded():
    seen = answers(change={"a": {"kernel": NASTY, "software": {"python": NASTY, "torch": NASTY}}})
    seen = dataclasses.replace(seen, faults={"d": NoAnswer("ssh", NASTY)}, hosts=(*HOSTS, NASTY))
    html = page(seen, [Finding("ssh", "hosts", (NASTY,), NASTY, (NASTY,), NASTY, NASTY, follows=(NASTY,))])
    own = (render.TEMPLATES / "page.js").read_text().encode("ascii", "xmlcharrefreplace").decode()
    assert "".join(Reader(html).text["script"]).strip() == own.strip()
    assert Reader(html).wanted == []
    assert "url(" not in html
    assert html.isascii()


@pytest.mark.parametrize("count", [17, 64])
def test_many_hosts_are_drawn_as_small_squares_whose_titles_say_what_failed(count):
    names = [f"h{number}" for number in range(count)]
    by_name = {name: facts(0) for name in names}
    links = tuple(Link(*pair, "10.0.0.1", 40000, ("data",), "ok", host=pair[1]) for pair in pairs(names))
    broken = dataclasses.replace(links[0], outcome="refused", host="")
    listens = {name: {"sampled": [40000]} for name in names}
    seen = Answers(answers().request, tuple(names), facts=by_name, listens=listens, links=(broken, *links[1:]))
    reader = Reader(page(seen))
    assert len(reader.cells) == count * (count - 1)
    assert [title.split(",")[0] for title, kind in reader.cells if kind in ("fault", "warning")] == [
        "h0 → h1: data ports: refused"
    ]
