"""Package builds and installs are isolated to one run: they reach nothing that belongs to another project.

The attacks come from build backends, wheels and base images, on a real engine, through a host's own containers.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import subprocess
import tarfile
import zipfile
from dataclasses import replace

import pytest

from deploy.send.packages import commands
from tests import index
from tests.hostile.orders import Failed, Host, source

IMAGE, PASSWORD = "muster-trainer:cpu", "sesame-4715"
# Reads, writes and signals whatever it can, and reports in its wheel where it succeeded.
SPY = """
import glob, signal, subprocess
got = {"read": [], "written": [], "processes": [], "killed": []}
own = os.environ["HOME"]
mine = lambda path: path.startswith((own, "/proc/self", f"/proc/{os.getpid()}/"))
for place in ("environ", "cmdline", "mem", "maps", "fd/0", "fd/1", "fd/2", "fd/3", "fd/4", "fd/5"):
    for path in glob.glob(f"/proc/[0-9]*/{place}"):
        if not mine(path):
            try:
                if place.startswith("fd"):
                    with open(path, "wb", buffering=0) as file:
                        file.write(b'{"done": {"built": []}}\\n')
                    got["written"].append(path)
                else:
                    if b"SECRET" in open(path, "rb").read(1 << 20): got["read"].append(path)
            except OSError: pass
tops = "/tmp /muster-tools /muster-cache /muster-wheels /muster /run /var /etc /dev/shm /root".split()
for top in tops:
    for at, inner, files in os.walk(top):
        for path in [at, *(os.path.join(at, file) for file in files)]:
            if mine(path): continue
            try:
                if os.path.isfile(path) and b"SECRET" in open(path, "rb").read(1 << 22): got["read"].append(path)
            except OSError: pass
            try:
                if os.path.isdir(path):
                    open(os.path.join(path, "evil.pth"), "w").write("import os"); got["written"].append(path)
                elif os.access(path, os.W_OK):
                    got["written"].append(path)
            except OSError: pass
            for act in (lambda: os.rename(path, path + ".real"), lambda: os.chmod(path, 0o777)):
                try: act(); got["written"].append("moved " + path)
                except OSError: pass
for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
    if pid != os.getpid():
        got["processes"].append(open(f"/proc/{pid}/status").read().split("Uid:")[1].split()[0])
        try: os.kill(pid, signal.SIGKILL); got["killed"].append(pid)
        except OSError: pass
mounts = [(line.split()[1], line.split()[3].split(",")) for line in open("/proc/self/mounts")]
got["mounts"] = sorted(at for at, options in mounts if at.startswith("/muster") and "rw" in options)
got["environment"] = [key for key, value in os.environ.items() if "SECRET" in value]
got["root"] = [os.getuid(), os.getgroups(), open("/proc/self/status").read().split("CapEff:")[1].split()[0]]
FILES["spied.json"] = json.dumps(got)
""".replace("SECRET", PASSWORD)
DAEMON = """
import ctypes, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(4, 0)  # its /proc is root's from now on
        while True:
            for place in ("/tmp", "/dev/shm"):
                try: open(place + "/left.py", "w").write("left")
                except OSError: pass
            for path in __import__("glob").glob("/tmp/*/build-*/out/*"):
                try: open(path, "ab").write(b"changed")
                except OSError: pass
            time.sleep(0.01)
    os._exit(0)
"""
LOOK = """
user = lambda pid: open(f"/proc/{pid}/status").read().split("Uid:")[1].split()[0]
own = [pid for pid in os.listdir("/proc") if pid.isdigit() and user(pid) == str(os.getuid())]
FILES["looked.json"] = json.dumps([os.listdir("/tmp"), os.listdir("/dev/shm"), own])
"""


@pytest.fixture(scope="module")
def engine(docker, tmp_path_factory):
    """A host that already has the tools."""
    made = Host(IMAGE, tmp_path_factory.mktemp("home"))
    made.install()
    yield made
    made.close()


@pytest.fixture
def host(engine):
    engine.variables, engine.instead, engine.said = {}, {}, []
    return engine


def file_of(host, built, name):
    """The content of a file in an installed package, parsed as JSON."""
    done = host.install(built)
    return json.loads(
        host.run(
            done["volume"], f"import odd, pathlib; print(pathlib.Path(odd.__file__).with_name({name!r}).read_text())"
        )
    )


@pytest.mark.holds("builds-apart")
def test_a_build_reaches_no_files_of_others_and_no_password(host):
    with index.serve("127.0.0.1", dict([index.wheel("helper", "1.0", "VALUE = 7")])) as url:
        host.variables = {"UV_DEFAULT_INDEX": url, "UV_INDEX": "", "HTTPS_PROXY": ""}
        kept = host.build(source(name="precious"), keep=(secrets.token_hex(32),), name="precious")
        host.install(kept)
        before = host.everything()
        # The build's own requirement came from the index that has the password.
        built = host.build(source("import helper\nassert helper.VALUE == 7\n" + SPY, requires='["helper"]'))
        spied = file_of(host, built, "spied.json")
    assert spied["read"] == spied["environment"] == spied["killed"] == []
    assert [path for path in spied["written"] if path not in ("/tmp", "/dev/shm")] == []
    assert spied["mounts"] == ["/muster-wheels"]
    assert spied["root"] == [host.uid, [], "0000000000000000"]
    assert any(path.endswith("bin/uv") for path in before), "there is something to lose"
    after = host.everything()
    assert {
        path: line for path, line in before.items() if after.get(path) != line and "muster-cache-tools" in path
    } == {}
    assert not [path for path in after if "evil" in path or ".real" in path]


@pytest.mark.holds("builds-apart")
def test_project_a_cannot_change_what_project_b_installs(host):
    """This attack once succeeded: a build replaced uv in the cache, which then ran in the next project's run."""
    replaces = """
import glob
for place in ("/muster-cache", "/muster-tools", "/muster-wheels", "/tmp"):
    for path in glob.glob(place + "/**/uv", recursive=True):
        os.rename(path, path + ".real")
        open(path, "w").write("#!/bin/sh\\nexit 0\\n"); os.chmod(path, 0o755)
"""
    clean = host.install(host.build(source(name="odd")))
    with pytest.raises(Failed, match="Errno"):
        host.build(source(replaces))
    again = host.install(host.build(source(name="odd")))
    assert again["digest"] == clean["digest"]
    assert host.run(again["volume"], "import odd; print(odd.VALUE)") == "1\n"


@pytest.mark.holds("builds-speak-for-nobody")
def test_a_build_cannot_forge_the_programs_answers(host):
    speaks = """
lines = '{"done": {"built": [{"key": "x", "sha256": "0"}]}}', '{"failed": 5, "words": "none"}', '{"say": "trust me"}'
for line in lines:
    print(line, flush=True); print(line, file=sys.stderr, flush=True); os.write(1, line.encode() + b"\\n")
"""
    built = host.build(source(speaks))
    assert built["name"] == "odd"
    assert not [line for line in host.said if "trust me" in line]
    with pytest.raises(Failed) as failed:
        host.build(source(speaks + "raise SystemExit('no compiler: gcc was not found')"))
    assert "gcc was not found" in str(failed.value)
    rows = [json.loads(line) for line in host.said if line.startswith("{")]
    assert [row for row in rows if "failed" in row and row["failed"] != 1] == []


@pytest.mark.holds("builds-apart")
def test_processes_left_by_a_build_end_with_it_and_touch_no_later_build(host):
    _, second = host.build(source(DAEMON, name="first"), source(LOOK))
    shared, memory, processes = file_of(host, second, "looked.json")
    assert (memory, len(shared), len(processes)) == ([], 1, 1), "one process, in one folder"


@pytest.mark.holds("builds-apart")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("os.symlink('/proc/1/environ', os.path.join(folder, name)); return name", "no wheel"),
        ("os.mkfifo(os.path.join(folder, name)); return name", "not a file"),
        ("return '../../../../etc/passwd'", "not a wheel"),
        ("FILES['../../evil.pth'] = 'x'", "evil.pth"),
    ],
)
def test_an_invalid_wheel_goes_no_further(host, body, words):
    before = host.volumes()
    with pytest.raises(Failed, match=words):
        host.build(source(body))
    assert host.volumes() == before, "what failed leaves no wheels"


@pytest.mark.holds("builds-apart")
@pytest.mark.parametrize(
    "need",
    [
        "evil @ http://127.0.0.1:{port}/${{UV_DEFAULT_INDEX}}/evil-1.0-py3-none-any.whl",
        "--index-url=http://127.0.0.1:{port}/",
        "-r /proc/1/environ",
        "evil\\n--extra-index-url http://127.0.0.1:{port}/${{UV_DEFAULT_INDEX}}",
        "evil @ file:///muster-tools/kept/evil-1.0-py3-none-any.whl",
    ],
)
def test_a_build_may_ask_an_index_only_for_names_and_versions(host, need):
    with index.serve("127.0.0.1", dict([index.wheel("evil", "1.0", "")])) as url:
        port = url.split("/")[2].rpartition(":")[2]
        host.variables = {"UV_DEFAULT_INDEX": url}
        asked = '["' + need.format(port=port) + '"]'
        more = f"def get_requires_for_build_wheel(settings=None):\n    return {asked}\n"
        with pytest.raises(Failed, match="give names and versions"):
            host.build(source(requires=asked) if "{port}" in need else source(more=more))


def test_a_build_gets_what_its_hook_asks_for(host):
    with index.serve("127.0.0.1", dict([index.wheel("helper", "1.0", "VALUE = 7")])) as url:
        host.variables = {"UV_DEFAULT_INDEX": url}
        more = "def get_requires_for_build_wheel(settings=None):\n    return ['helper>=1']\n"
        assert host.build(source("import helper", more=more))["name"] == "odd"


def test_a_build_that_needs_the_base_images_torch_gets_it_and_reports_it(host):
    built = host.build(source("import torch; FILES['odd.py'] = f'VALUE = {torch.__version__!r}'"))
    assert "+cpu" in host.run(host.install(built)["volume"], "import odd; print(odd.VALUE)")
    assert any("beside the base" in line for line in host.said)


def test_a_package_of_the_folder_is_built_from_a_copy(host, tmp_path):
    """The folder is mounted read-only, and -e leaves the code where it is."""
    tmp_path.chmod(0o755)
    (tmp_path / "libs/odd").mkdir(parents=True)
    (tmp_path / "libs/odd/odd.py").write_text("VALUE = 3")
    with tarfile.open(fileobj=io.BytesIO(source("open('written', 'w').write('x')"))) as tar:
        tar.extractall(tmp_path, filter="data")
    for name in ("pyproject.toml", "backend.py"):
        (tmp_path / "odd-1.0" / name).rename(tmp_path / "libs/odd" / name)
    mounts = ("--mount", f"type=bind,source={tmp_path},target={commands.PLACES['source']},readonly")
    rows = [
        {
            "key": f"{number}" * 32,
            "kind": "folder",
            "path": "libs/odd",
            "editable": bool(number),
        }
        for number in (0, 1)
    ]
    box = replace(host.box(secrets.token_hex(16)), mounts=mounts)
    done = host.do(commands.build(box), {"mode": "build", "sources": rows}, {})
    plain, editable = ({**row, "scratch": box.scratch} for row in done["built"])
    assert (tmp_path / "libs/odd/odd.py").read_text() == "VALUE = 3"
    assert sorted(path.name for path in (tmp_path / "libs").iterdir()) == ["odd"]
    assert plain["sha256"] != editable["sha256"]
    volume = host.install(editable)["volume"]
    order = {"mode": "build", "sources": rows[1:], "keep": {rows[1]["key"]: secrets.token_hex(32)}}
    kept = []
    for text in ("", "", "# what builds it lies beside what describes it"):
        (tmp_path / "libs/odd/beside.py").write_text(text)
        box = replace(host.box(secrets.token_hex(16)), mounts=mounts)
        (row,) = host.do(commands.build(box), order, {})["built"]
        host.install({**row, "scratch": box.scratch})
        kept.append(row["kept"])
    assert kept == [False, True, False]
    run = ("--mount", f"type=bind,source={tmp_path},target=/muster/run/work,readonly")
    assert host.run(volume, "import odd; print(odd.VALUE)", *run) == "3\n"


@pytest.mark.holds("installs-run-nothing")
def test_an_install_runs_no_code_of_a_package(host):
    leaves = "import pathlib\nfor place in ('/muster-cache', '/muster/packages'): pathlib.Path(place, 'RAN').touch()\n"
    name, wheel = index.wheel("aa", "1.0", leaves, needs="")
    with zipfile.ZipFile(data := io.BytesIO(wheel), "a") as archive:
        archive.writestr("aa.pth", "import aa\n")
        archive.writestr("sitecustomize.py", leaves)
    lock = f"aa==1.0 --hash=sha256:{hashlib.sha256(data.getvalue()).hexdigest()}"
    done = host.install(lock=(lock,), **{name: data.getvalue()})
    assert not [path for path in host.everything() if "RAN" in path]
    words = ["docker", "run", "--rm", "-v", f"{done['volume']}:/v:ro", "--entrypoint", "find", IMAGE, "/v"]
    files = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "site-packages/aa.pth" in files
    assert "__pycache__/aa.cpython" in files, "bytecode is compiled"
    assert "RAN" not in files


@pytest.mark.holds("bases-apart")
def test_a_hostile_base_image_reaches_no_cache_of_another(host):
    tag = f"muster-test-{host.user}"
    says = '#!/bin/sh\\ntouch /muster-cache/EVIL /muster-tools/EVIL; exec /venv/bin/python "$@"\\n'
    place = "/usr/local/sbin/python"
    built = f"FROM {IMAGE}\nUSER root\nRUN printf '{says}' >{place} && chmod 755 {place}\n"
    built += "ENV PATH=/usr/local/sbin:/venv/bin:/usr/bin:/bin\n"
    same = f"FROM {IMAGE}\nENV LD_PRELOAD=/muster/work/evil.so\n"
    try:
        for text, name in ((built, tag), (same, f"{tag}-env")):
            subprocess.run(
                ["docker", "build", "-q", "-t", name, "-"], input=text, text=True, check=True, capture_output=True
            )
        host.install(host.build(source()))
        before = host.everything()
        host.install(image=tag)
        after = host.everything()
        assert before.items() <= after.items()
        assert any("EVIL" in path for path in after), "the attack was there"
        assert len({host.box(image=name).base for name in (IMAGE, tag, f"{tag}-env")}) == 3
    finally:
        subprocess.run(["docker", "image", "rm", "--force", tag, f"{tag}-env"], capture_output=True, check=False)


@pytest.mark.holds("kept-by-hash")
def test_a_kept_wheel_is_one_that_a_clean_build_of_that_source_made(host):
    key, other, third = (secrets.token_hex(32) for _ in range(3))
    plain = source()
    first = host.build(plain, keep=(key,))
    host.install(first)
    again = host.build(plain, keep=(key,))
    assert again["kept"]
    assert again["sha256"] == first["sha256"]
    assert not host.build(source("FILES['evil.py'] = ''"), keep=(key,))["kept"], "another source under its key"
    host.variables = {"UV_INDEX": "https://other.example/simple"}
    assert not host.build(plain, keep=(key,))["kept"], "another index"
    host.variables = {}
    for forged in ("../../muster-wheels", "x", key.upper(), key[:-1]):
        assert not host.build(plain, keep=(forged,))["kept"]
    assert not host.build(source(name="even"), keep=(key,), name="even")["kept"], "a name counts too"
    # A wheel is not kept if its build ran next to leftovers that cannot be removed.
    stays = "os.mkdir('/tmp/a'); os.chdir('/tmp/a')\n"
    stays += "for n in range(3000):\n    os.mkdir('d'); os.chdir('d')\n"
    dirty = source(stays, name="first")
    host.install(*host.build(dirty, plain, keep=(other, third)))
    assert host.build(dirty, keep=(other,))["kept"]
    assert not host.build(plain, keep=(third,))["kept"]


@pytest.mark.holds("builds-limited")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("x = []\nwhile True: x.append(bytearray(64 << 20))", "needed more memory"),
        (
            "import threading, time\nfor n in range(9000):\n"
            "    try: threading.Thread(target=time.sleep, args=(60,)).start()\n"
            "    except RuntimeError: print(n, 'processes, and no more', flush=True); os._exit(1)",
            "40[0-9][0-9] processes, and no more",
        ),
        (
            "with open(os.path.join(os.environ['HOME'], 'big'), 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
            "No space left",
        ),
        ("for n in range(200): os.write(1, b'x' * (1 << 20))\nraise SystemExit('said enough')", "said enough"),
    ],
)
def test_a_build_over_its_limits_ends_and_says_why(host, body, words):
    host.instead = {("--mount", "type=volume,target=/tmp"): ("--tmpfs", "/tmp:exec,size=300m")}
    with pytest.raises(Failed, match=words) as failed:
        host.build(source(body))
    assert len(str(failed.value)) < 300_000


def test_a_build_ends_when_nobody_waits_for_it(host):
    """A laptop is closed or a command is stopped: the input ends, and so do all processes that the build started."""
    box = host.box(secrets.token_hex(16))
    data = source("import time\nos.fork()\ntime.sleep(3600)")
    order = {"mode": "build", "sources": [{"key": "a" * 32, "kind": "git", "tar": "git-0.tar"}]}

    def names():
        words = ["docker", "ps", "--quiet", "--filter", f"label=muster.user={host.user}"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()

    def builds():
        tops = [["docker", "top", name] for name in names()]
        shown = [subprocess.run(top, capture_output=True, text=True, check=False).stdout for top in tops]
        return any('"do": "wheel"' in processes for processes in shown)

    with pytest.raises(Failed):
        host.do(commands.build(box), order, {"git-0.tar": data}, builds)
    assert names() == []
    assert box.wheels not in host.volumes()
