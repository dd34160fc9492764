"""A script notices no hook: each legal use of a function gives the same result with hooks on it as without.

Both variants run the same body; the tests compare its output, traceback, warnings and exit code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# These tests start programs.
pytestmark = pytest.mark.long

HOME = Path(__file__).parents[5]
# The library that a script uses, and the hooks on it, which look at all of their arguments.
LIBRARY = '''
import inspect, warnings
def add(tensors, more=1, *rest, inputs=None, **named):
    """Adds."""
    if more < 0:
        raise ValueError(f"negative: {more}")
    if more > 9:
        warnings.warn("large", stacklevel=2)
    return tensors if more == 0 else [tensors, more, rest, inputs, named]
def again(other):
    return other()
class Loader:
    def __init__(self, count=2):
        self.count = count
    def __next__(self):
        if not self.count:
            raise StopIteration
        self.count -= 1
        return self.count
    def __iter__(self):
        return self
class Child(Loader):
    pass
'''
HOOKED = """
import library
from trainer.node.rank import hooks
OURS = '''
def before(*words, **named):
    {does}
    return len(words)
def after(mark, result, fault):
    {does}
'''
exec(compile(OURS, hooks.__file__, "exec"))
for owner, name in ((library, "add"), (library, "again"), (library.Loader, "__next__")):
    hooks.wrap(owner, name, before, after)
"""
CASES = {
    "None and names": "print(library.add(None), library.add(tensors=2), library.add(1, 2, 3, inputs=4, other=5))",
    "identity": "x = []\nprint(library.add(x, 0) is x, library.add is add, library.add == add)",
    "signature": "print(inspect.signature(add), inspect.getfullargspec(add), add.__doc__, add.__qualname__)",
    "source": "print(inspect.getsource(add), inspect.isfunction(add), type(add))",
    "pickle": "print(pickle.loads(pickle.dumps(add)) is add, pickle.loads(pickle.dumps(library.Loader(3))).count)",
    "copy": "print(copy.deepcopy(add) is add, copy.deepcopy(library.Loader(4)).count)",
    "partial": "print(functools.partial(add, 1, inputs=2)(), functools.partialmethod(add, 1).func is add)",
    "iteration": "print(list(library.Loader()), list(library.Child(3)), next(library.Loader(1)))",
    "subclass": "class Own(library.Child):\n    def __next__(self): return super().__next__() + 10\nprint(list(Own()))",
    "bound": "print(library.Loader().__next__.__qualname__, 'super' in dir(library.Loader.__next__))",
    "generator": "def many():\n    while True: yield add((yield), 2)\nm = many(); next(m); print(m.send(3)); m.close()",
    "again": "print(library.again(lambda: library.again(lambda: add(7))))",
    "thread": "t = threading.Thread(target=lambda: print(add(1))); t.start(); t.join()",
    "failing thread": "t = threading.Thread(target=add, args=(1, -1)); t.start(); t.join()",
    "fork": "pid = os.fork()\nif not pid: print(add(1), flush=True); os._exit(3)\nprint(os.waitpid(pid, 0)[1], add(1))",
    "uncaught": "def inner(): return add(1, -2)\ninner()",
    "uncaught in a callback": "library.again(lambda: library.again(lambda: add(1, -2)))",
    "wrong arguments": "add()",
    "caught": "try: add(1, -1)\nexcept ValueError: traceback.print_exc()",
    "raised again": "try: add(1, -1)\nexcept ValueError as fault: raise KeyError('other') from fault",
    "group": "try: add(1, -1)\nexcept ValueError as fault: raise ExceptionGroup('two', [fault, TypeError()])",
    "frames": "try: add(1, -1)\nexcept ValueError as f: print([s.name for s in traceback.extract_tb(f.__traceback__)])",
    "finally": "try:\n    add(1, -1)\nfinally: print('cleans')",
    "exit": "library.again(lambda: sys.exit(5))",
    "exit with words": "library.again(lambda: sys.exit('words'))",
    "interrupt": "def stop(): raise KeyboardInterrupt\nlibrary.again(stop)",
    "warning": "warnings.simplefilter('always')\nadd(1, 10)\ndef f(): add(1, 11)\nf()",
    "warnings once": "for _ in range(3): add(1, 12)\nadd(1, 12)",
    "warning as an error": "warnings.simplefilter('error')\nadd(1, 10)",
    "own excepthook": "sys.excepthook = lambda *about: print('mine', about[0].__name__)\nadd(1, -1)",
}  # fmt: skip
HEAD = "import copy, functools, inspect, os, pickle, signal, sys, threading, traceback, warnings, library\n"
HEAD += "from library import add\n"
# Each case runs in its own child process; the stack frames above the script's are cut off.
RUNS = """
import hooked, json, os, pathlib, sys
found = {}
for name, body in json.loads(pathlib.Path("cases.json").read_text()).items():
    if not (pid := os.fork()):
        for number, path in ((1, "out"), (2, "err")):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        pathlib.Path("train.py").write_text(body)
        code = 0
        try:
            exec(compile(body, "train.py", "exec"), {"__name__": "__main__"})
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else repr(end.code)
        except BaseException as fault:
            sys.excepthook(type(fault), fault, fault.__traceback__.tb_next)
            code = 1
        print("code", code, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    found[name] = [pathlib.Path(path).read_text() for path in ("out", "err")]
print(json.dumps(found))
"""


def found(folder: Path, hooked: str) -> dict[str, list[str]]:
    (folder / "library.py").write_text(LIBRARY)
    (folder / "run.py").write_text(RUNS)
    (folder / "hooked.py").write_text(hooked)
    (folder / "cases.json").write_text(json.dumps({name: HEAD + body for name, body in CASES.items()}))
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{HOME}", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.run(
        [sys.executable, "run.py"], cwd=folder, env=environment, stdout=subprocess.PIPE, timeout=60
    )
    return dict(json.loads(process.stdout))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hooks")


@pytest.fixture(scope="module")
def by_hand(folder: Path) -> dict[str, list[str]]:
    return found(folder, "")


FAILS = {"hook": "pass", "hook that fails": "raise ZeroDivisionError('ours')"}


@pytest.fixture(scope="module", params=FAILS.values(), ids=FAILS)
def hooked(request: pytest.FixtureRequest, folder: Path) -> dict[str, list[str]]:
    return found(folder, HOOKED.format(does=request.param))


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_a_script_behaves_the_same_with_and_without_hooks(
    by_hand: dict[str, list[str]], hooked: dict[str, list[str]], name: str
) -> None:
    assert "code" in by_hand[name][0]
    assert hooked[name] == by_hand[name]


def ran(folder: Path, body: str, does: str) -> str:
    (folder / "library.py").write_text(LIBRARY)
    (folder / "train.py").write_text(HOOKED.format(does=does) + HEAD + body)
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{HOME}"}
    return subprocess.check_output([sys.executable, "train.py"], cwd=folder, env=environment, text=True, timeout=60)


def test_the_hooks_of_these_tests_are_called(tmp_path: Path) -> None:
    assert ran(tmp_path, "add(1)", "print('hook')") == "hook\nhook\n"


def test_a_signal_in_a_hook_reaches_the_script(tmp_path: Path) -> None:
    """A script's own time limit is an exception from its signal handler, which may run at any moment."""
    body = """
class Limit:
    def __call__(self, *_):
        raise TimeoutError
def late(*_):
    raise TimeoutError
for handler in (late, Limit(), functools.partial(late, 1)):
    signal.signal(signal.SIGUSR1, handler)
    try:
        add(1)
    except TimeoutError as fault:
        print([frame.name for frame in traceback.extract_tb(fault.__traceback__)])
"""
    said = ran(tmp_path, body, "import os, signal; os.kill(os.getpid(), signal.SIGUSR1)").splitlines()
    assert said == ["['<module>', 'late']", "['<module>', '__call__']", "['<module>', 'late']"]
