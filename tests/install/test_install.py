"""What Muster asks of each host, in memory, with a real index: each host installs and decides only for itself."""

from __future__ import annotations

import hashlib
import io
import json
import resource
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.core.results import HostsFailed, Results
from deploy.send.background import BackgroundTask
from deploy.send.packages import base, install, requirements, resolve, store, uv
from deploy.send.packages.exchange import ToolFailed
from deploy.send.packages.from_source import git
from deploy.send.packages.inside import tools
from deploy.send.packages.places import Has
from deploy.send.packages.settings import Settings
from tests import index
from tests.hostile.watch import Watch

DYNAMIC = '[project]\nname = "odd"\ndynamic = ["version"]\n[build-system]\nrequires = []\nbuild-backend = "b"\n'
FILES = dict(
    [
        index.wheel("plain", "1.0", ""),
        index.wheel("plain", "2.0", "", needs="other>=1"),
        index.wheel("other", "1.0", ""),
        index.wheel("evil", "1.0", "raise SystemExit('owned')"),
        index.source("sourced", "1.0", ""),
        index.wheel("torchvision", "0.28.0", "", needs="torch==2.13.0"),
        index.wheel("torchaudio", "2.11.0", ""),
    ]
)
DESCRIBED = {
    "python": "3.11.9",
    "platform": {"machine": "x86_64", "libc": ["glibc", "2.36"]},
    "base": [
        {"name": "torch", "version": "2.13.0+cpu", "requires": ["there"], "extras": []},
        {"name": "there", "version": "1.0", "requires": [], "extras": []},
    ],
}
NOW = "as the hosts are"
NO_INDEX = {"failed": tools.NO_INDEX, "words": "dns error"}


@pytest.fixture(scope="module")
def address():
    with index.serve("127.0.0.1", FILES) as url:
        yield url


class Place:
    """A host in memory. `fails`: the program's last line, by the order's mode. `files`: the digest of its installation.

    described: what it reports about its base. needs: what it reports that each of its builds needs.
    """

    def __init__(self, name, fails=None, files="f" * 64, described=DESCRIBED, needs=()):
        self.name, self.who, self.fails, self.files = name, name, fails or {}, files
        self.described, self.needs = described, list(needs)
        self.has, self.orders, self.locks, self.got = set(), [], [], []

    def look(self):
        return Has(("base",), {"PATH": "/bin"}, frozenset(self.has))

    def environment(self, digest):
        return f"packages-{digest}"

    def machine(self):
        return "x86_64"

    def remove(self, digest):
        self.has.discard(self.environment(digest))

    def forget(self, scratch):
        self.orders.append("forget")

    def run(self, exchange, order, files, digest, scratch):
        mode = order["mode"]
        self.orders.append(mode)
        self.got.append(sorted(files))
        offline = "UV_NO_INDEX" in exchange._settings.variables
        if mode in self.fails and not offline:
            exchange.line(json.dumps(self.fails[mode]))
            return 1, ""
        if mode == "install":
            self.locks.append((order["lock"], order["built"]))
            self.has.add(self.environment(digest))
        built = [self._built(row) for row in order.get("sources", ())]
        done = {"describe": self.described, "install": {"digest": self.files, "size": 9}, "build": {"built": built}}
        exchange.line(json.dumps({"done": done[mode]}))
        return 0, ""

    def _built(self, row):
        digest = hashlib.sha256(f"{self.name}{row['key']}".encode()).hexdigest()
        name = "sourced" if "sourced" in row.get("line", "") else "odd"
        name = row.get("name") or name
        said = {"key": row["key"], "wheel": f"{name}-1.0-py3-none-any.whl", "sha256": digest}
        return {**said, "name": name, "version": "1.0", "requires": self.needs, "extras": []}


def each(places, work):
    outcomes = {}
    for place in places:
        try:
            outcomes[place.name] = work(place)
        except DeployError as fault:
            outcomes[place.name] = fault
    return Results(outcomes)


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    """uv, downloaded once."""
    return Path(uv.program(tmp_path_factory.mktemp("uv"))).parents[1]


@pytest.fixture
def bring(tmp_path, address, tool):
    """Install the packages of a requirements text; `more`: other files in the folder, by path.

    `coming`: a base for which packages are resolved ahead; NOW stands for the base of these hosts.
    """

    def bring(text, *places, more=None, cache="cache", first="requirements.txt", coming=None):
        folder = tmp_path / "folder"
        files = {first: text, **(more or {})}
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content if isinstance(content, bytes) else content.encode())
        needs = requirements.read(folder, first, set(files))
        settings = Settings({"UV_DEFAULT_INDEX": address, "NO_PROXY": "127.0.0.1", "UV_HTTP_RETRIES": "0"})
        needs, settings = requirements.take_out_logins(needs, settings)
        asked = install.PackageRequest(needs, settings, lambda place, words: None, folder, each=each)
        own = tmp_path / cache / "muster" / "packages"
        own.mkdir(parents=True, exist_ok=True)
        if not (own / tool.name).exists():
            (own / tool.name).symlink_to(tool)
        if coming:
            ahead = (places, asked, None, own) if coming is NOW else ((), asked, coming, own)
            asked = replace(asked, foreseen=BackgroundTask(lambda: install.foresee(*ahead)))
        return install.install_packages(places, asked, own)

    return bring


def unpacked(archive):
    """A source archive as git gives it: without the folder at its top."""
    made = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as whole, tarfile.open(fileobj=made, mode="w") as tar:
        for entry in whole:
            content = whole.extractfile(entry)
            entry.name = entry.name.partition("/")[2]
            tar.addfile(entry, content)
    return made.getvalue()


def names(place):
    lines, built = place.locks[-1]
    return [line.split(" ")[0] for line in lines] + [row["wheel"] for row in built]


def test_all_hosts_install_once_and_the_second_time_nothing_happens(bring):
    a, b = Place("a"), Place("b")
    first = bring("plain", a, b)
    assert a.orders == b.orders == ["describe", "install"]
    assert names(a) == ["other==1.0", "plain==2.0"]
    again = bring("plain", a, b)
    assert a.orders == b.orders == ["describe", "install"]
    assert again.environments == first.environments
    assert (first.size, again.size) == (9, 0)


def test_a_file_of_any_length_is_read(bring):
    for count in range(30, 34):
        bring("plain".ljust(count - 1, "\n") + "\n", a := Place("a"))
        assert names(a) == ["other==1.0", "plain==2.0"]


@pytest.mark.parametrize("cache", ["jürgen's cache", 'a "b" \\c'])
def test_the_cache_works_in_a_folder_with_any_characters(bring, cache):
    bring("plain", a := Place("a"), cache=cache)
    assert names(a) == ["other==1.0", "plain==2.0"]


def test_each_line_has_the_hashes_of_the_index(bring):
    a = Place("a")
    bring("plain", a)
    digest = hashlib.sha256(FILES["plain-2.0-py3-none-any.whl"]).hexdigest()
    assert f"plain==2.0 --hash=sha256:{digest}" in a.locks[0][0]


def test_a_new_host_installs_the_earlier_lock(bring):
    bring("plain", Place("a"))
    late = Place("late")
    bring("plain", late)
    assert late.orders == ["describe", "install"]


def test_nothing_is_installed_if_the_base_has_everything(bring):
    a = Place("a")
    assert bring("there\ntorch", a).environments == {}
    assert a.orders == ["describe"]


@pytest.mark.holds("nobody-decides")
def test_a_host_with_a_different_base_is_named_and_nothing_is_installed(bring):
    lie = json.loads(json.dumps(DESCRIBED))
    lie["base"][1]["requires"] = ["evil"]
    a, b, c = Place("a"), Place("b", described=lie), Place("c")
    with pytest.raises(DeployError, match="b: the image's packages differ from those on a, c: there says"):
        bring("plain", a, b, c)
    assert a.orders == ["describe"]


def test_a_host_is_asked_for_its_base_again_if_other_hosts_report_another(bring):
    lie = json.loads(json.dumps(DESCRIBED))
    lie["base"][1]["requires"] = ["evil"]
    bring("plain", mended := Place("mended", described=lie))
    mended.described = DESCRIBED
    bring("plain", mended, Place("b"))
    assert mended.orders == ["describe", "install", "describe", "install"]


@pytest.mark.holds("nobody-decides")
def test_one_hosts_invented_base_counts_for_no_other_host(bring):
    lie = json.loads(json.dumps(DESCRIBED))
    lie["base"][0]["requires"] = ["evil"]
    bring("torch\nplain", liar := Place("liar", described=lie))
    assert "evil==1.0" in names(liar)
    bring("torch\nplain", honest := Place("honest"))
    assert names(honest) == ["other==1.0", "plain==2.0"]


@pytest.mark.holds("nobody-decides")
@pytest.mark.parametrize(
    "need", ["evil @ https://evil.example/e.whl", "evil @ file:///etc/passwd", "a\nRequires-Dist: b"]
)
def test_an_address_in_a_hosts_answer_is_ignored(need):
    said = {**DESCRIBED, "base": [{"name": "torch", "version": "2", "requires": [need], "extras": []}]}
    assert base.read(said, "x").packages[0].requires == ()


@pytest.mark.holds("nobody-decides")
def test_a_build_is_used_only_on_the_host_that_made_it(bring):
    a, b = Place("a"), Place("b")
    bring("sourced", a, b)
    assert a.orders == b.orders == ["describe", "build", "install"]
    assert a.locks[0][1] != b.locks[0][1], "each installs the wheel that it built itself"
    assert not [name for got in a.got + b.got for name in got if name.endswith(".whl")]


@pytest.mark.holds("nobody-decides")
def test_hosts_that_report_different_needs_for_a_build_are_named(bring):
    a, b, c = Place("a"), Place("b", needs=["evil"]), Place("c")
    with pytest.raises(DeployError, match=r"b: its build of libs/odd needs something other than that of a, c"):
        bring("./libs/odd", a, b, c, more={"libs/odd/pyproject.toml": DYNAMIC})
    assert [place.orders for place in (a, b, c)] == [["describe", "build", "forget"]] * 3


@pytest.mark.holds("nobody-decides")
def test_one_hosts_report_about_a_build_is_not_believed_later(bring):
    more = {"libs/odd/pyproject.toml": DYNAMIC}
    bring("./libs/odd", liar := Place("liar", needs=["evil"]), more=more)
    assert "evil==1.0" in names(liar)
    honest = Place("honest")
    bring("./libs/odd", honest, more=more)
    assert names(honest) == ["odd-1.0-py3-none-any.whl"]


def test_a_git_source_is_fetched_here_and_built_by_each_host(bring, monkeypatch):
    word, inner = "git+https://host/outer.git", "git+https://me:sesame@host/inner.git@v1"
    fetched = {word: index.source("outer", "1.0", "", needs=f"inner @ {inner}")[1]}
    fetched[inner] = index.source("inner", "1.0", "", needs="plain<2")[1]
    monkeypatch.setattr(git, "fetch_all", lambda words, tell: {name: unpacked(fetched[name]) for name in words})
    with pytest.raises(DeployError, match=r"outer needs 'inner @ git\+https://host/inner.git@v1', which you were not"):
        bring(f"outer @ {word}", Place("a"))
    bring(f"outer @ {word}\ninner @ {inner}", a := Place("b"))
    assert a.orders == ["describe", "build", "install"]
    assert names(a)[0] == "plain==1.0"
    assert len(a.locks[0][1]) == 2
    assert "sesame" not in json.dumps([a.locks, a.got])


def test_needs_that_all_builds_report_are_resolved(bring):
    a, b = Place("a", needs=["plain<2"]), Place("b", needs=["plain<2"])
    bring("./libs/odd", a, b, more={"libs/odd/pyproject.toml": DYNAMIC})
    assert names(a) == names(b) == ["plain==1.0", "odd-1.0-py3-none-any.whl"]


PLAIN = base.Base("3.11.9", "x86_64", ("glibc", "2.36"), ())
PINS = ("torch==2.13.0+cpu --hash=sha256:0", "there==1.0 --hash=sha256:0")


@pytest.mark.parametrize(
    ("text", "pins", "times"),
    [("plain", PINS, 1), ("plain", PINS[:1], 2), ("plain\ntorch", PINS, 2), ("./libs/odd", PINS, 2)],
    ids=["as foreseen", "another base", "the index has no torch", "a build says its needs"],
)
def test_a_lock_resolved_ahead_is_used_by_hosts_with_the_same_base(bring, monkeypatch, text, pins, times):
    made, old = [], resolve.Resolving.lock
    monkeypatch.setattr(resolve.Resolving, "lock", lambda self: made.append(self) or old(self))
    about = {"more": {"libs/odd/pyproject.toml": DYNAMIC}}
    installed = bring(text, Place("a", needs=["plain<2"]), coming=base.of_lock(PLAIN, store.Lock(pins)), **about)
    assert len(made) == times
    usual = bring(text, Place("b", needs=["plain<2"]), cache="of another machine", **about)
    assert installed.lock == usual.lock


def test_resolving_ahead_for_known_hosts_reports_failures_and_skips_builds(bring):
    a = Place("a")
    bring("plain", a, coming=NOW)
    assert names(a) == ["other==1.0", "plain==2.0"]
    assert a.orders == ["describe", "install"]
    bring("./libs/odd", b := Place("b"), coming=NOW, more={"libs/odd/pyproject.toml": DYNAMIC})
    assert b.orders == ["describe", "build", "install"]
    with pytest.raises(ToolFailed, match="nothing-has-it"):
        bring("nothing-has-it", Place("c"), coming=NOW)


@pytest.mark.holds("pinned-hashes")
@pytest.mark.parametrize("name", ["plain", "sourced"])
def test_an_index_that_has_other_files_than_the_user_pinned_is_refused(bring, name):
    a = Place("a")
    with pytest.raises(DeployError, match=rf"{name}==.*hashes that your file does not pin"):
        bring(f"{name} --hash=sha256:{'0' * 64}", a)
    assert a.orders == ["describe"]


@pytest.mark.parametrize("line", ["./wheels/mine-1.0-py3-none-any.whl", "mine @ ./wheels/mine-1.0-py3-none-any.whl"])
def test_a_wheel_of_the_folder_is_installed_by_its_hash(bring, line):
    name, wheel = index.wheel("mine", "1.0", "", needs="plain<2")
    bring(line, a := Place("a"), more={f"wheels/{name}": wheel})
    assert f"mine==1.0 --hash=sha256:{hashlib.sha256(wheel).hexdigest()}" in a.locks[0][0]
    assert names(a) == ["mine==1.0", "plain==1.0"]
    assert a.got[-1] == [f"wheels/{name}"]


MINE = '[project]\nname = "mine"\nversion = "1"\ndependencies = ["plain<2"]\n'


@pytest.mark.parametrize(
    "line",
    [
        "-e mine", "-e {folder}/mine", "mine @ file://{folder}/mine", '-e "./mine"', "-e ./mine#egg=mine[x]",
        "mine/ ; python_version > '3'", "-r more/base.txt",
    ],
)  # fmt: skip
def test_every_notation_for_a_package_of_the_folder_is_read(bring, tmp_path, line):
    more = {"mine/pyproject.toml": MINE + "optional-dependencies.x = []\n", "more/base.txt": "-e ./mine\n"}
    bring(line.format(folder=tmp_path / "folder"), a := Place("a"), more=more)
    assert names(a) == ["plain==1.0", "mine-1.0-py3-none-any.whl"]


@pytest.mark.parametrize(
    ("lines", "installed"),
    [
        ("-e mine", set()),
        ("-e mine[fast]", {"other==1.0"}),
        ("mine[Fast] @ ./mine", {"other==1.0"}),
        ("-e mine[all]", {"other==1.0"}),
        ("mine\n./user", {"other==1.0"}),
    ],
    ids=["none", "named", "named otherwise", "an extra of extras", "of another package"],
)
def test_only_the_requested_extras_are_installed(bring, lines, installed):
    extras = 'fast = ["other"]\nold = ["plain<2"]\nall = ["mine[fast]"]\neach = ["mine[old]"]\n'
    project = '[project]\nname = "{}"\nversion = "1"\n{}'
    mine = project.format("mine", f"[project.optional-dependencies]\n{extras}")
    user = project.format("user", 'dependencies = ["mine[fast]"]\n')
    more = {"mine/pyproject.toml": mine, "user/pyproject.toml": user}
    bring(lines.replace("mine\n", "./mine\n"), a := Place("a"), more=more)
    assert {name for name in names(a) if "==" in name} == installed


def test_a_base_version_that_no_index_has_does_no_harm(bring):
    of_debian = {"name": "distro-info", "version": "1.1build1", "requires": [], "extras": []}
    bring("plain", a := Place("a", described={**DESCRIBED, "base": [*DESCRIBED["base"], of_debian]}))
    assert names(a) == ["other==1.0", "plain==2.0"]


@pytest.mark.parametrize("pinned", ["", "--require-hashes\n"])
def test_a_wheel_that_is_named_by_its_path_alone_has_its_own_hash(bring, pinned):
    name, wheel = index.wheel("mine", "1.0", "")
    text = f"{pinned}./wheels/{name} --hash=sha256:{{}}"
    bring(text.format(hashlib.sha256(wheel).hexdigest()), a := Place("a"), more={f"wheels/{name}": wheel})
    assert names(a) == ["mine==1.0"]
    with pytest.raises(DeployError, match="hashes that your file does not pin"):
        bring(text.format("0" * 64), Place("b"), more={f"wheels/{name}": wheel})


def test_one_more_index_gives_only_the_best_version_as_pip_would(bring):
    old = dict([index.wheel("plain", "1.5", ""), index.wheel("extra", "1.0", "", needs="plain>=2")])
    with index.serve("127.0.0.1", old, login="") as more:
        bring(f'--extra-index-url "{more}"\nextra', a := Place("a"))
    assert names(a) == ["extra==1.0", "other==1.0", "plain==2.0"]


def test_a_requirements_file_with_pre_gets_prereleases(bring):
    early = dict([index.wheel("early", "1.0", ""), index.wheel("early", "2.0rc1", "")])
    with index.serve("127.0.0.1", early, login="") as more:
        bring(f"--pre\n--extra-index-url {more}\nearly", a := Place("a"))
    assert names(a) == ["early==2.0rc1"]


SOURCES = '[project]\nname = "mine"\nversion = "1"\ndependencies = ["plain"]\n[tool.uv.sources]\nplain = '


@pytest.mark.parametrize("place", ["{ index = 'own' }", "{ workspace = true }", "{ url = 'https://host/plain.whl' }"])
def test_a_dependency_with_its_own_source_is_never_taken_from_an_index(bring, place):
    with pytest.raises(DeployError, match=r"libs/mine: its \[tool.uv.sources\] takes plain from a place of its own"):
        bring("./libs/mine", Place("a"), more={"libs/mine/pyproject.toml": f"{SOURCES}{place}\n"})


def test_a_package_in_the_folder_is_not_taken_from_an_index(bring):
    name, wheel = index.wheel("plain", "0.1", "")
    more = {"libs/mine/pyproject.toml": f"{SOURCES}{{ path = '../../{name}' }}\n", name: wheel}
    bring(f"./libs/mine\n./{name}", a := Place("a"), more=more)
    assert a.locks[0][0] == [f"plain==0.1 --hash=sha256:{hashlib.sha256(wheel).hexdigest()}"]


def test_a_uv_lock_is_obeyed_with_its_hashes_and_the_packages_of_the_folder(bring, tmp_path, tool, address):
    project = (
        '[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["plain<2", "odd"]\n'
        '[build-system]\nrequires = []\nbuild-backend = "b"\n[tool.uv.sources]\nodd = { path = "libs/odd" }\n'
    )
    odd = '[project]\nname = "odd"\nversion = "1"\ndependencies = ["other"]\nrequires-python = ">=3.11"\n'
    made = tmp_path / "made"
    for path, text in {"pyproject.toml": project, "libs/odd/pyproject.toml": odd}.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_text(text)
    variables = {"HOME": str(made), "NO_PROXY": "127.0.0.1", "UV_DEFAULT_INDEX": address, "UV_NO_CONFIG": "1"}
    words = [tool / "bin/uv", "lock", "--project", made, "--python", sys.executable]
    subprocess.run(words, env=variables, check=True, capture_output=True)
    lock, more = (made / "uv.lock").read_text(), {"pyproject.toml": project, "libs/odd/pyproject.toml": odd}
    bring(lock, a := Place("a"), more=more, first="uv.lock")
    assert [line.split()[0] for line in a.locks[0][0]] == ["other==1.0", "plain==1.0"]
    assert sorted(row["wheel"] for row in a.locks[0][1]) == ["mine-1.0-py3-none-any.whl", "odd-1.0-py3-none-any.whl"]
    swapped = hashlib.sha256(FILES["plain-1.0-py3-none-any.whl"]).hexdigest()
    with pytest.raises(DeployError, match=r"plain==1.0: the index offers it with hashes that your file does not pin"):
        bring(lock.replace(swapped, "0" * 64), Place("a"), more=more, first="uv.lock")


def test_a_host_that_reaches_no_index_gets_the_wheels_from_here(bring):
    a, b = Place("a", {"install": NO_INDEX}), Place("b")
    bring("plain", a, b)
    assert (a.orders, b.orders) == (["describe", "install", "install"], ["describe", "install"])
    assert a.got[-1] == ["wheels/other-1.0-py3-none-any.whl", "wheels/plain-2.0-py3-none-any.whl"]
    assert not b.got[-1]


def test_the_error_names_this_machine_if_it_reaches_no_index(bring):
    a = Place("a")
    with pytest.raises(DeployError, match="this machine: it reaches no package index"):
        bring("-i http://127.0.0.1:9/simple\nplain", a)
    assert a.orders == ["describe"]


def test_the_error_names_this_machine_if_it_cannot_fetch_wheels_for_a_host(bring, monkeypatch):
    bring("plain==1.0\n", Place("a"))
    monkeypatch.setattr(resolve, "find_offers", lambda *asked: (_ for _ in ()).throw(uv.Failed("error: dns error")))
    with pytest.raises(HostsFailed) as refused:
        bring("plain==1.0\n", Place("b", fails={"install": NO_INDEX}))
    assert "this machine: it reaches no package index: dns error" in str(refused.value.faults["b"])


def test_a_host_with_other_files_is_named_and_loses_them(bring):
    a, b, c = Place("a"), Place("b", files="e" * 64), Place("c")
    with pytest.raises(DeployError, match="b: the installed files differ from those of a, c"):
        bring("plain", a, b, c)
    assert a.has
    assert c.has
    assert not b.has


@pytest.mark.holds("nobody-decides")
def test_one_hosts_report_about_its_files_blames_no_other_host_later(bring):
    bring("plain", liar := Place("liar", files="e" * 64))
    with pytest.raises(DeployError, match="c: the installed files differ from those of liar"):
        bring("plain", liar, Place("c"))
    bring("plain", Place("a"), Place("b"))


def test_a_host_that_failed_before_installs_next_to_one_that_did_not(bring):
    a, b = Place("a", {"install": {"failed": 1, "words": "no"}}), Place("b")
    with pytest.raises(HostsFailed):
        bring("plain", a, b)
    a.fails.clear()
    bring("plain", a, b)
    assert a.has == b.has


def test_if_two_hosts_differ_neither_is_believed(bring):
    a, b = Place("a", files="e" * 64), Place("b")
    with pytest.raises(DeployError, match="the installed files differ"):
        bring("plain", a, b)
    assert not a.has
    assert not b.has


def test_the_error_has_uvs_own_message(bring):
    with pytest.raises(ToolFailed, match=r"this machine: uv could not resolve .*No solution found.*plain==9") as fault:
        bring("plain==9", Place("a"))
    assert not fault.value.words, "the error has all of them: they are shown once"


@pytest.mark.parametrize("line", ["plain==9", "plain>=9", "evil>=9", "no-such-one", "No_Such.one>=1  # mine"])
def test_the_hint_names_the_line_that_the_index_cannot_give(bring, line):
    with pytest.raises(ToolFailed) as fault:
        bring(f"# all of it\nother\n{line}", Place("a"))
    where = f"requirements.txt:3 ({line.removesuffix('  # mine')})"
    assert fault.value.hint == f"correct {where}; or leave the packages out: --requirements no"


def test_a_missing_answer_is_an_error(bring):
    a = Place("a")
    a.run = lambda *_: (137, "killed")
    with pytest.raises(HostsFailed):
        bring("plain", a)


def test_an_endless_answer_is_an_error(bring):
    a = Place("a")

    def endless(exchange, *_):
        while True:
            exchange.line("x" * 60_000)

    a.run = endless
    with pytest.raises(HostsFailed, match="a: its packages' program says more than"):
        bring("plain", a)


def test_a_cache_where_another_user_may_write_is_refused(bring, tmp_path):
    folder = tmp_path / "open" / "muster"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(DeployError, match="another user can write there"):
        bring("plain", Place("a"), cache="open")


@pytest.mark.holds("resolves-without-running")
@pytest.mark.parametrize("backend", ["backend", "get_interpreter_info", "python.get_interpreter_info"])
def test_no_code_of_a_package_runs_on_this_machine(bring, tmp_path, backend):
    canary = tmp_path / "ran"
    code = f"open({str(canary)!r}, 'w')\n"
    project = f'[build-system]\nrequires = []\nbuild-backend = "{backend}"\nbackend-path = ["."]\n'
    more = {"libs/odd/pyproject.toml": project, "libs/odd/setup.py": code, f"libs/odd/{backend.split('.')[0]}.py": code}
    bring("./libs/odd\nplain", Place("a"), more=more)
    bring("sourced", Place("a"))
    assert not canary.exists()


@pytest.fixture
def elsewhere():
    """A server of archives that is not an index: its address, and a table to which a test adds files."""
    files = {}
    with index.serve("127.0.0.1", files, login="") as url:
        yield url.removesuffix("/simple") + "/files", files


@pytest.fixture
def private(tmp_path):
    """A folder of the user with a wheel and a package; the fixture checks that nobody opened a file in it."""
    folder = tmp_path / "private"
    (folder / "dir").mkdir(parents=True)
    name, wheel = index.wheel("priv", "1.0", "", needs="leaked")
    (folder / name).write_bytes(wheel)
    (folder / "dir/pyproject.toml").write_text(
        '[project]\nname = "privdir"\nversion = "1"\ndependencies = ["leaked"]\n'
    )
    watch = Watch(folder)
    yield folder
    assert watch.opened() == set()
    watch.close()


def added(files, name, version="1.0", needs="", make=index.wheel):
    """Put a package on a server; returns its file name and SHA-256."""
    file, content = make(name, version, "", needs=needs)
    files[file] = content
    return file, hashlib.sha256(content).hexdigest()


def test_a_wheel_given_by_its_address_is_fetched_here_and_sent_to_each_host(bring, elsewhere):
    place, files = elsewhere
    name, digest = added(files, "trc", needs="plain<2")
    a, b = Place("a"), Place("b")
    bring(f"trc @ {place}/{name}", a, b)
    assert names(a) == ["plain==1.0", "trc==1.0"]
    assert f"trc==1.0 --hash=sha256:{digest}" in a.locks[0][0]
    assert a.got[-1] == b.got[-1] == [f"wheels/{name}"]
    files.clear()
    bring(f"trc @ {place}/{name}", c := Place("c"))
    assert c.got[-1] == [f"wheels/{name}"], "what was fetched is kept with its lock"


@pytest.mark.parametrize(
    "line",
    ["{at}", "trc@{at} ; python_version > '3'", "trc[x] @ {at}#sha256={sha}", "{at} --hash=sha256:{sha}"],
)
def test_every_notation_for_an_address_is_read(bring, elsewhere, line):
    place, files = elsewhere
    name, digest = added(files, "trc")
    bring(line.format(at=f"{place}/{name}", sha=digest), a := Place("a"))
    assert names(a) == ["trc==1.0"]


def test_a_source_archive_by_its_address_is_built_by_each_host(bring, elsewhere):
    place, files = elsewhere
    name, _ = added(files, "odd", make=index.source)
    a, b = Place("a"), Place("b")
    bring(f"odd @ {place}/{name}", a, b)
    assert a.orders == b.orders == ["describe", "build", "install"]
    assert a.locks[0][0] == []
    assert len(a.locks[0][1]) == 1


def test_a_host_without_an_index_also_gets_wheels_fetched_by_address(bring, elsewhere):
    place, files = elsewhere
    name, _ = added(files, "trc", needs="plain<2")
    bring(f"trc @ {place}/{name}", a := Place("a", {"install": NO_INDEX}))
    assert a.got[-1] == ["wheels/plain-1.0-py3-none-any.whl", f"wheels/{name}"]


@pytest.mark.holds("addresses-asked")
@pytest.mark.parametrize("line", ["trc @ {at} --hash=sha256:{zero}", "trc @ {at}#sha256={zero}"])
def test_a_file_that_differs_from_the_pinned_one_is_refused(bring, elsewhere, line):
    place, files = elsewhere
    name, _ = added(files, "trc")
    with pytest.raises(DeployError, match="does not have the hash"):
        bring(line.format(at=f"{place}/{name}", zero="0" * 64), Place("a"))


NESTED = [
    "priv @ file://{private}/priv-1.0-py3-none-any.whl",
    "privdir @ file://{private}/dir",
    "priv @ {private}/priv-1.0-py3-none-any.whl",
    "priv@file:{private}/priv-1.0-py3-none-any.whl",
    "priv @ file://localhost{private}/priv-1.0-py3-none-any.whl ; python_version > '3'",
    "priv @ git+file://{private}/dir",
    "priv @ {at}/priv-1.0-py3-none-any.whl",
]


@pytest.mark.holds("addresses-asked")
@pytest.mark.parametrize("need", NESTED)
@pytest.mark.parametrize("kind", ["fetched", "of the folder", "index", "package"])
def test_a_packages_needs_open_no_local_file_and_contact_nobody(bring, elsewhere, private, need, kind):
    place, files = elsewhere
    added(files, "priv", needs="leaked")
    need, asked = need.format(private=private, at=place), heard(files)
    name, wheel = index.wheel("trc", "1.0", "", needs=need)
    more, first = {}, f"./{name}"
    if kind == "fetched":
        files[name], first = wheel, f"trc @ {place}/{name}"
    elif kind == "index":
        files[name], first = wheel, f"--extra-index-url {place.removesuffix('/files')}/simple\ntrc"
    elif kind == "package":
        project = f'[project]\nname = "trc"\nversion = "1.0"\ndependencies = [{json.dumps(need)}]\n'
        more, first = {"libs/trc/pyproject.toml": project}, "./libs/trc"
    else:
        more = {name: wheel}
    a = Place("a")
    with pytest.raises(DeployError) as refused:
        bring(first, a, more=more)
    assert "trc" in str(refused.value)
    assert not a.locks
    assert "priv-1.0-py3-none-any.whl" not in asked


def heard(files):
    """Returns a list that, from now on, records which of its files a server was asked for."""
    asked = []

    class Heard(bytes):
        def __new__(cls, name, content):
            made = super().__new__(cls, content)
            made.name = name
            return made

        def __len__(self):
            asked.append(self.name)
            return super().__len__()

    files |= {name: Heard(name, content) for name, content in files.items()}
    return asked


@pytest.mark.holds("addresses-asked")
def test_a_file_that_a_build_reports_as_a_need_is_not_opened(bring, private):
    needs = [f"priv @ {(private / 'priv-1.0-py3-none-any.whl').as_uri()}"]
    with pytest.raises(DeployError, match="needs"):
        bring("./libs/odd", Place("a", needs=needs), more={"libs/odd/pyproject.toml": DYNAMIC})


def test_a_need_by_address_is_allowed_if_the_file_lists_the_same_address(bring, elsewhere):
    place, files = elsewhere
    inner, _ = added(files, "inner")
    name, _ = added(files, "trc", needs=f"inner @ {place}/{inner}")
    bring(f"trc @ {place}/{name}\ninner @ {place}/{inner}", a := Place("a"))
    assert names(a) == ["inner==1.0", "trc==1.0"]


@pytest.mark.holds("addresses-asked")
@pytest.mark.parametrize("offline", [False, True])
def test_an_index_page_with_links_to_local_files_sends_nothing(bring, elsewhere, tmp_path, offline):
    place, files = elsewhere
    name, wheel = index.wheel("priv", "1.0", "")
    (tmp_path / name).write_bytes(wheel)
    link = f"<!DOCTYPE html><html><body><a href='{(tmp_path / name).as_uri()}'>{name}</a></body></html>"
    files["/simple/priv/"] = link.encode()
    a = Place("a", {"install": NO_INDEX} if offline else {})
    with pytest.raises(DeployError, match="priv"):
        bring(f"--extra-index-url {place.removesuffix('/files')}/simple\npriv", a)
    assert (a.orders, a.locks) == (["describe"], [])


def test_a_package_that_only_a_find_links_page_has_is_refused(bring, elsewhere):
    place, files = elsewhere
    name, digest = added(files, "trc")
    files["/links"] = f"<!DOCTYPE html><a href='/files/{name}#sha256={digest}'>{name}</a>".encode()
    with pytest.raises(DeployError, match="trc"):
        bring(f"--find-links {place.removesuffix('/files')}/links\ntrc", a := Place("a"))
    assert not a.locks


@pytest.mark.holds("addresses-asked")
def test_an_index_option_after_a_requirement_is_refused(bring, elsewhere):
    place, files = elsewhere
    added(files, "plain", "0.5")
    with pytest.raises(DeployError):
        bring(f"plain==0.5 --index-url {place.removesuffix('/files')}/simple", Place("a"))


def test_a_project_takes_a_package_from_an_index_that_it_names(bring, elsewhere):
    place, files = elsewhere
    added(files, "trc")
    simple = place.removesuffix("/files") + "/simple"
    project = '[project]\nname = "mine"\nversion = "1"\ndependencies = ["trc", "plain<2"]\n[tool.uv.sources]\n'
    project += f'trc = {{ index = "own" }}\n[[tool.uv.index]]\nname = "own"\nurl = "{simple}"\n'
    bring(project, a := Place("a"), first="pyproject.toml")
    assert names(a) == ["plain==1.0", "trc==1.0"]


@pytest.mark.parametrize("build", ["", '[build-system]\nrequires = []\nbuild-backend = "b"\n'])
@pytest.mark.parametrize(
    "limit", ["constraint-dependencies = ['plain<2', 'torch<2']", "override-dependencies = ['plain==1.0']"]
)
def test_a_project_gets_only_the_versions_that_its_uv_would_take(bring, limit, build):
    needs = '[project]\nname = "mine"\nversion = "1"\ndependencies = ["plain>=1", "torch"]\n'
    bring(f"{needs}{build}[tool.uv]\n{limit}\n", a := Place("a"), first="pyproject.toml")
    assert names(a)[0] == "plain==1.0"


def test_a_project_takes_a_wheel_from_an_address_that_it_names(bring, elsewhere):
    place, files = elsewhere
    name, _ = added(files, "trc")
    for need, source in (
        (f"trc @ {place}/{name}", ""),
        ("trc", f'[tool.uv.sources]\ntrc = {{ url = "{place}/{name}" }}\n'),
    ):
        project = f'[project]\nname = "mine"\nversion = "1"\ndependencies = ["{need}"]\n{source}'
        bring(project, a := Place("a"), first="pyproject.toml")
        assert names(a) == ["trc==1.0"]


def test_the_wheel_for_this_python_is_chosen_from_two(bring, elsewhere):
    place, files = elsewhere
    one, _ = added(files, "trc")
    two, _ = added(files, "trc", "2.0")
    lines = f"trc @ {place}/{one} ; python_version < '3.11'\ntrc @ {place}/{two} ; python_version >= '3.11'"
    bring(lines, a := Place("a"))
    assert names(a) == ["trc==2.0"]


def bomb(kind):
    """A wheel that would fill the memory of a reader without limits, or that contradicts itself."""
    made, head = io.BytesIO(), "Metadata-Version: 2.1\nName: trc\nVersion: 1.0\n"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_LZMA if kind == "packed" else zipfile.ZIP_DEFLATED) as whole:
        if kind == "entries":
            for number in range(60_000):
                whole.writestr(f"{number}", "")
        if kind in ("long", "packed"):
            head += "Description: " + "x" * (1 << 26)
        if kind == "needs":
            head += "".join(f"Requires-Dist: a{number}\n" for number in range(3000))
        whole.writestr("trc-1.0.dist-info/METADATA", head)
        if kind == "two":
            whole.writestr("TRC-1.0.dist-info/METADATA", head + "Requires-Dist: priv @ file:///priv.whl\n")
    content = made.getvalue()
    at = content.find(b"METADATA") + len(b"METADATA")
    damaged = content[:at] + bytes(letter ^ 0xA5 for letter in content[at : at + 24]) + content[at + 24 :]
    return {"cut": content[:100], "damaged": damaged}.get(kind, content)


@pytest.mark.holds("addresses-asked")
@pytest.mark.parametrize("kind", ["entries", "long", "packed", "needs", "two", "cut", "damaged"])
@pytest.mark.parametrize("line", ["trc @ {at}/{name}", "./{name}"])
def test_a_wheel_that_cannot_be_read_within_limits_is_refused(bring, elsewhere, kind, line):
    place, files = elsewhere
    name, wheel = "trc-1.0-py3-none-any.whl", bomb(kind)
    files[name] = wheel
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DeployError, match="no wheel that can be read"):
        bring(line.format(at=place, name=name), a := Place("a"), more={name: wheel})
    assert a.orders == ["describe"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_a_uv_lock_takes_an_archive_from_the_address_that_it_names(bring, elsewhere):
    place, files = elsewhere
    name, digest = added(files, "trc")
    project = '[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["trc"]\n'
    project += f'[tool.uv.sources]\ntrc = {{ url = "{place}/{name}" }}\n'
    lock = f"""version = 1
requires-python = ">=3.11"
[[package]]
name = "mine"
version = "1"
source = {{ virtual = "." }}
dependencies = [{{ name = "trc" }}]
[package.metadata]
requires-dist = [{{ name = "trc", url = "{place}/{name}" }}]
[[package]]
name = "trc"
version = "1.0"
source = {{ url = "{place}/{name}" }}
wheels = [{{ url = "{place}/{name}", hash = "sha256:{digest}" }}]
"""
    bring(lock, a := Place("a"), more={"pyproject.toml": project}, first="uv.lock")
    assert names(a) == ["trc==1.0"]
    swapped = lock.replace(digest, "0" * 64)
    with pytest.raises(DeployError, match="does not have the hash"):
        bring(swapped, Place("a"), more={"pyproject.toml": project}, first="uv.lock")


def test_only_lines_with_a_version_are_reported_to_exclude_the_bases_torch(bring):
    project = """
[project]
name = "nano"
version = "1.0"
dependencies = [
    "torch==2.9.1",
]
[tool.uv.sources]
torch = [
    { index = "cpu" },
]
"""
    with pytest.raises(DeployError) as refused:
        bring(project, Place("a"), first="pyproject.toml")
    assert str(refused.value).count("excludes torch") == 1
    assert 'pyproject.toml:6: `"torch==2.9.1",` excludes torch 2.13.0+cpu of the base' in str(refused.value)
    assert refused.value.hint.startswith("loosen that line; or here: ")
    place = 'source = { registry = "https://index.invalid/simple" }'
    needs, locked = "", ""
    for version, pythons in (("2.8.0", "python_full_version < '3.11'"), ("2.9.1", "python_full_version >= '3.11'")):
        needs += f'{{ name = "torch", version = "{version}", {place}, marker = "{pythons}" }},'
        wheel = f'{{ url = "https://index.invalid/torch-{version}-py3-none-any.whl", hash = "sha256:{"0" * 64}" }}'
        locked += f'[[package]]\nname = "torch"\nversion = "{version}"\n{place}\nresolution-markers = ["{pythons}"]\n'
        locked += f"wheels = [{wheel}]\n"
    lock = f"""version = 1
requires-python = ">=3.10"
resolution-markers = ["python_full_version >= '3.11'", "python_full_version < '3.11'"]
[[package]]
name = "nano"
version = "1.0"
source = {{ virtual = "." }}
dependencies = [{needs}]
{locked}"""
    with pytest.raises(DeployError) as refused:
        bring(lock, Place("a"), more={"pyproject.toml": project.replace("==2", ">=2")}, first="uv.lock")
    assert str(refused.value).count("excludes torch") == 1, "the version that Python 3.11 gets, not the other one"
    assert 'uv.lock:17: `version = "2.9.1"` excludes torch 2.13.0+cpu of the base' in str(refused.value)
    assert refused.value.hint.startswith("--requirements pyproject.toml, if that allows it; loosen that line; or ")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("error: command 'gcc' failed", "compiler"),
        ("No space left on device (os error 28)", "docker system df"),
        ("the package does not satisfy Python>=3.13", "on hosts: --image"),
        ("anything else", "--requirements no"),
    ],
)
def test_the_hint_is_the_next_step(words, hint):
    assert hint in install.hint(words)


@pytest.mark.parametrize("line", ["torchvision", "torchaudio"])
def test_a_torch_companion_built_for_cuda_is_refused_with_the_index_for_cpus(bring, line):
    with pytest.raises(ToolFailed) as refused:
        bring(f"{line}\n", Place("a"))
    assert f"{line}==" in str(refused.value)
    assert "built for CUDA, not for torch 2.13.0+cpu of the base" in str(refused.value)
    assert refused.value.hint.startswith("add PyTorch's own index for CPUs to yours: pip config set")


def test_without_an_index_option_torchvision_comes_from_pytorchs_own_index(bring, monkeypatch):
    row = f"torchvision==0.28.0+cpu --hash=sha256:{'0' * 64}"

    class Resolving:
        """Stands in for two indexes that the test does not contact: the usual one has only a build for CUDA."""

        def __init__(self, question, tool, scratch):
            self.variables = tool.settings.variables

        def lock(self):
            if self.variables.get("UV_TORCH_BACKEND") == "cpu":
                return store.Lock((row,), torch="2.13.0+cpu")
            raise resolve.OtherTorch("torchvision==0.28.0 of the index")

    class Seen(Place):
        """Records the settings with which it installs."""

        def run(self, exchange, order, *rest):
            if order["mode"] == "install":
                self.backend = exchange._settings.variables.get("UV_TORCH_BACKEND")
            return super().run(exchange, order, *rest)

    monkeypatch.setattr(resolve, "Resolving", Resolving)
    monkeypatch.setattr(Settings, "indexes", ())
    first, later = Seen("a"), Seen("b")
    assert bring("torchvision\n", first).lock.lines == (row,)
    bring("torchvision\n", later)
    assert (first.backend, later.backend) == ("cpu", "cpu"), "also with the lock of before"
