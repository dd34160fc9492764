"""What is asked of which host, in memory: who locks, who installs, who gets another's files, whose files differ."""

import json

import pytest

from deploy.core.errors import DeployError
from deploy.core.results import HostsFailed, Results
from deploy.packages import commands, install
from deploy.packages.exchange import ToolFailed
from deploy.packages.inside import tools
from deploy.packages.places import Has
from deploy.packages.requirements import Requirements
from deploy.packages.settings import Settings

LINE = f"six==1.16.0 --hash=sha256:{'a' * 64}"
NEEDS = Requirements("requirements.txt", "file", (("requirements.txt", b"six"),))


class Place:
    """A host in memory. `fails`: the program's last line, by the order's mode. `files`: what its install digests to."""

    def __init__(self, name, fails=None, files="f" * 64, lock=(LINE,)):
        self.name, self.fails, self.files, self.locked = name, fails or {}, files, list(lock)
        self.has, self.orders, self.got = set(), [], []

    def look(self):
        return Has(("base",), {"PATH": "/bin"}, frozenset(self.has))

    def environment(self, digest):
        return f"packages-{digest}"

    def machine(self):
        return "x86_64"

    def export(self, digest, take):
        take(b"files of " + self.name.encode())

    def remove(self, digest):
        self.has.discard(self.environment(digest))

    def run(self, digest, exchange, order, files):
        mode = order["mode"]
        self.orders.append(mode)
        if mode == "unpack":
            self.got.append(bytes(files["packages.tar"]))
        if mode in self.fails:
            exchange.line(json.dumps(self.fails[mode]))
            return 1, ""
        done = (
            {"lock": self.locked, "left_out": [], "base": {"torch": "2"}}
            if mode == "lock"
            else {"digest": self.files, "size": 9}
        )
        if digest:
            self.has.add(self.environment(digest))
        exchange.line(json.dumps({"done": done}))
        return 0, ""


def each(places, work):
    outcomes = {}
    for place in places:
        try:
            outcomes[place.name] = work(place)
        except DeployError as fault:
            outcomes[place.name] = fault
    return Results(outcomes)


def bring(folder, *places, instead=None):
    asked = install.PackageRequest(NEEDS, Settings(), lambda place, words: None, each, instead)
    return install.bring(places, asked, folder)


NO_INDEX = {"failed": tools.NO_INDEX, "words": "dns error"}


def test_one_locks_and_all_install_and_the_second_time_nobody_does_anything(tmp_path):
    a, b = Place("a"), Place("b")
    first = bring(tmp_path, a, b)
    assert (a.orders, b.orders) == (["lock", "install"], ["install"])
    again = bring(tmp_path, a, b)
    assert (a.orders, b.orders) == (["lock", "install"], ["install"])
    assert again.environments == first.environments
    assert (first.size, again.size) == (9, 0)


def test_a_new_host_installs_the_lock_of_before(tmp_path):
    bring(tmp_path, Place("a"))
    late = Place("late")
    bring(tmp_path, late)
    assert late.orders == ["install"]


def test_nothing_is_installed_where_the_base_has_all(tmp_path):
    a = Place("a", lock=())
    assert bring(tmp_path, a).environments == {}
    assert a.orders == ["lock"]


def test_the_next_host_locks_where_the_first_reaches_no_index(tmp_path):
    a, b = Place("a", {"lock": NO_INDEX, "install": NO_INDEX}), Place("b")
    bring(tmp_path, a, b)
    assert (a.orders, b.orders) == (["lock", "install", "unpack"], ["lock", "install"])
    assert a.got == [b"files of b"]


def test_this_machine_installs_for_hosts_of_which_none_reaches_an_index(tmp_path):
    here = Place("this machine")
    cut = [Place(name, {"lock": NO_INDEX, "install": NO_INDEX}) for name in "ab"]
    assert set(bring(tmp_path, *cut, instead=here).environments) == {"a", "b"}
    assert here.orders == ["lock", "install"]
    assert [place.got for place in cut] == [[b"files of this machine"]] * 2


def test_without_any_way_each_host_is_named(tmp_path):
    with pytest.raises(HostsFailed, match=r"(?s)a: it reaches no package index.*b: it reaches no package index"):
        bring(tmp_path, *(Place(name, {"lock": NO_INDEX}) for name in "ab"))
    assert not list(tmp_path.iterdir())


def test_a_host_with_other_files_is_named_and_loses_them(tmp_path):
    a, b = Place("a"), Place("b", files="e" * 64)
    with pytest.raises(DeployError, match="b: the installed files differ"):
        bring(tmp_path, a, b)
    assert a.has
    assert not b.has


def test_uvs_own_words_are_the_error(tmp_path):
    words = "error: No solution found\n  cause: Because six==9 does not exist\n  more"
    with pytest.raises(ToolFailed, match=r"a: uv could not resolve .*: No solution found; Because six==9") as fault:
        bring(tmp_path, Place("a", {"lock": {"failed": 1, "words": words}}))
    assert fault.value.words == words


def test_a_host_that_answers_with_another_kind_of_lock_is_refused(tmp_path):
    with pytest.raises(DeployError, match="lock"):
        bring(tmp_path, Place("a", lock=["--index-url https://evil.example"]))


def test_an_answer_that_never_comes_is_a_fault(tmp_path):
    a = Place("a")
    a.run = lambda *_: (137, "killed")
    with pytest.raises(DeployError):
        bring(tmp_path, a)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("error: command 'gcc' failed", "compiler"),
        ("No space left on device (os error 28)", "docker system df"),
        ("`torch==1` excludes torch 2 of the base image", "--image"),
        (
            "torchvision==1 of the index is not built for torch 2+cpu of the base: name an image with torchvision",
            "pytorch/",
        ),
        ("anything else", "--requirements no"),
    ],
)
def test_the_hint_is_the_next_step(words, hint):
    assert hint in install.hint(words)


def test_the_program_is_one_text_without_the_rest_of_muster():
    text = commands.program().decode()
    compile(text, "program", "exec")
    assert "\nfrom ." not in text
