"""Inputs designed to hurt readers of a project: wheels, git sources, requirements, ignore rules, settings, claims."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import tempfile
import zipfile
import zlib
from pathlib import Path

from tests.hostile.fuzz import crafted, mutate, samples

WHEEL, INFO = "odd-1.0-py3-none-any.whl", "odd-1.0.dist-info"
_METADATA = b"Metadata-Version: 2.1\nName: Odd\nVersion: 1.0\nRequires-Dist: tqdm>4\nProvides-Extra: x\n\nwords\n"
_MANY = (10, 3000, 60_000)
_HASH = "--hash=sha256:" + "0" * 64
_LONG = (5_000, 100_000, 900_000)


def wheel(random):
    """What a build left in place of a wheel."""
    files = {f"{INFO}/METADATA": _metadata(random), f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n"}
    more = random.choice((
        dict, lambda: {"odd/zeros": b"\0" * random.choice((10 << 20, 150 << 20))},
        lambda: {f"odd/{number}{'x' * random.choice((0, 40, 300))}": b"" for number in range(random.choice(_MANY))},
        lambda: {"/".join("d" * 400): b"x", "odd/\u202e": b"", "é" * 300: b""},
        lambda: {f"{INFO}/RECORD": b",,\n" * 9000},
    ))()  # fmt: skip
    made, mode = io.BytesIO(), random.choice((0o644, 0o644, 0o644, 0o644, 0o120777, 0o10644))
    with zipfile.ZipFile(made, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)), compresslevel=1) as file:
        for name, data in {**files, **more}.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = random.choice((8, 8, 8, 12, 14)) if len(data) > 1 << 20 else 8
            info.external_attr = mode << 16 if name in more else 0
            info.comment, info.extra = random.choice(
                ((b"", b""), (b"", b""), (b"c" * 60_000, struct.pack("<HH", 9, 0)))
            )
            file.writestr(info, data)
    data = made.getvalue()
    return {WHEEL: random.choice((
        *[lambda: data] * 9, lambda: data[: random.randrange(len(data))],
        lambda: mutate.mutated(data, random), lambda: _overlapping(random, data), lambda: _lying_directory(random),
        lambda: b"PK\5\6" * (1 << 20), lambda: data + b"\0" * 70_000,
        lambda: data[:-22] + mutate.mutated(data[-22:], random),
    ))()}  # fmt: skip


def _metadata(random):
    long = random.choice(_LONG)
    return random.choice((
        lambda: _METADATA, lambda: _METADATA, lambda: b"A:\n" * long + _METADATA, lambda: b" x\n" * long + _METADATA,
        lambda: _METADATA.replace(b"1.0", b"1" + b".0" * long + random.choice((b"x", b"!"))),
        lambda: _METADATA.replace(b"Odd", b"o-_." * long),
        lambda: _METADATA.replace(b"tqdm>4", b"a " * long), lambda: b"Requires-Dist: tqdm\n" * long + _METADATA,
        lambda: _METADATA + b"\0" * (5 << 20), lambda: b"\r" * long + _METADATA, lambda: b"x" * long,
        lambda: mutate.mutated(_METADATA, random), lambda: b"Name: =?utf-8?q?" + b"=41" * long + b"?=\n" + _METADATA,
    ))()  # fmt: skip


def _overlapping(random, data):
    """A zip file with many entries that share one content."""
    content = zlib.compress(b"\0" * (4 << 20), 9)[2:-4]
    crc = zlib.crc32(b"\0" * (4 << 20))
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 8, 0, 33, crc, len(content), 4 << 20, 1, 0) + b"a" + content
    names = [b"odd/%d" % number for number in range(random.choice((50, 900)))]
    rows = b"".join(
        struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 8, 0, 33, crc, len(content), 4 << 20, len(name), *[0] * 6)
        + name for name in names
    )  # fmt: skip
    return local + rows + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, len(names), len(names), len(rows), len(local), 0)


def _lying_directory(random):
    """A zip directory that declares another number of entries than it has."""
    row = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    rows = row * random.choice((60_000, 340_000))
    return rows + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 5, 5, len(rows), 0, 0)


def source(random):
    """A git source's repository: its objects, as a fetch leaves them."""
    way = random.randrange(8)
    files = {"pyproject.toml": _toml(random), "requirements.txt": _needs(random), "setup.py": b"x"}
    if way == 0:
        files["data"] = b"\0" * random.choice((9 << 20, 200 << 20))
    elif way == 1:
        files |= {f"d{number % 9}/{number}": b"x" for number in range(random.choice(_MANY))}
    elif way == 2:
        files |= {"/".join("d" * random.choice((30, 900))): b"x", "n" * 3000: b"x", 'p\xff\n\t"': b"x"}
    elif way == 3:
        files |= {f"{n}/{m}/requirements.txt": b"x @ git+https://h/%d\n" % n * 9000 for n in range(9) for m in range(9)}
    elif way == 4:
        files |= {f"{n}/pyproject.toml": random.randbytes(500_000) for n in range(random.choice((3, 100)))}
    lines = [b"commit refs/heads/none\ncommitter a <a@b> 1795238476 +0000\ndata 0\n"]
    for name, data in files.items():
        quoted = json.dumps(name).encode("latin-1", "replace").replace(b"\\u00ff", b"\\377")
        mode = random.choice((b"100644", b"100644", b"100755", b"120000")) if way == 2 else b"100644"
        lines.append(b"M %s inline %s\ndata %d\n%s\n" % (mode, quoted, len(data), data))
    if way == 5:  # 30 nested folders, each with twice the content of the one inside it
        lines.append(b"D setup.py\n")
    with tempfile.TemporaryDirectory() as above:
        _git(above, "init", "-q", "--bare", ".")
        _git(above, "fast-import", "--quiet", given=b"".join(lines))
        commit = _git(above, "rev-parse", "refs/heads/none").decode().strip()
        if way == 5:
            commit = _bomb(above, commit, random.choice((12, 20, 40)))
        objects = {
            path.relative_to(above).as_posix(): path for path in Path(above, "objects").rglob("*") if path.is_file()
        }
        found = {name: path.read_bytes() for name, path in objects.items()}
    if way == 6:
        name = random.choice(list(found))
        found[name] = mutate.mutated(found[name], random)
    return {**found, "commit": commit.encode()}


def _bomb(folder, commit, deep):
    """A commit with `deep` nested folders, each of which contains the next one twice."""
    tree = _git(folder, "rev-parse", f"{commit}^{{tree}}").decode().strip()
    for _ in range(deep):
        tree = _git(folder, "mktree", given=f"040000 tree {tree}\ta\n040000 tree {tree}\tb\n".encode()).decode().strip()
    return _git(folder, "commit-tree", "-m", "x", tree).decode().strip()


def _git(folder, *words, given=b""):
    names = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    variables = {"PATH": os.environ["PATH"], "HOME": folder, **names}
    return subprocess.run(
        ["git", *words], cwd=folder, input=given, env=variables, check=True, capture_output=True
    ).stdout


def needs(random):
    """The files that declare what a project needs."""
    name = random.choice(("requirements.txt", "requirements.txt", "pyproject.toml", "uv.lock"))
    files = {"a.whl": b"x", "p/setup.py": b"x", "requirements.txt": _needs(random)}
    if name == "requirements.txt":
        if random.random() < 0.1:
            files |= {f"r{n}.txt": b"-r r%d.txt\n" % (n + 1) + b"-r requirements.txt\n" * 50_000 for n in range(14)}
            files["r14.txt"] = files["requirements.txt"] = b"-r r0.txt\n./big.tar.gz\n"
            files["big.tar.gz"] = bytes(random.choice((0, 5 << 20, 40 << 20)))
            return files
        if random.random() < 0.3:
            count = random.choice((40, 3000))
            files |= {f"r{n}.txt": b"-r r%d.txt\n-r r%d.txt\n" % (n + 1, n * 2 % count) for n in range(count)}
            files["requirements.txt"] = random.choice(
                (b"-r r0.txt\n", b"".join(b"-r r%d.txt\n" % n for n in range(count)))
            )
        return files
    files["pyproject.toml"] = _toml(random)
    if name == "uv.lock":
        row = '[[package]]\nname = "a"\nversion = "1"\nsource = { registry = "https://h/simple" }\n' + random.choice((
            "", 'wheels = [{ url = "https://h/a-1-py3-none-any.whl", hash = "sha256:0" }]\n' * 1,
            "wheels = [" + '{ url = "https://h/a.whl" },' * 9000 + "]\n",
        ))  # fmt: skip
        files["uv.lock"] = random.choice((
            lambda: ("version = 1\n" + row * random.choice((1, 300, 9000))).encode(), lambda: _toml(random),
            lambda: mutate.mutated(row.encode(), random),
        ))()  # fmt: skip
    return files


def _needs(random):
    """The text of a requirements file."""
    long = random.choice(_LONG)
    return random.choice((
        lambda: f"torch>=2\ntqdm==4 {_HASH}\nnumpy; python_version > '3.9'\n-e ./p\n./a.whl\n".encode(),
        lambda: f"tqdm=={'1.' * 20}0 {_HASH}\n".encode() * (long // 90), lambda: b"a" + b"\\\n" * (long // 2),
        lambda: b"a[" + b"x," * (long // 2), lambda: b"a" * long, lambda: b"a " * (long // 2),
        lambda: b"a ;" * (long // 3),
        lambda: b"a" + b"-." * (long // 2) + b"!", lambda: b"a @ " + b" " * long + b"x", lambda: b"#" * long,
        lambda: b"a --hash=" * (long // 9), lambda: b"-" * long, lambda: b"--index-url " + b"h" * long,
        lambda: b"\n" * long,
        lambda: b"".join(b"p%d\n" % number for number in range(long // 7)),
        lambda: b"git+https://h/" + b"@a" * (long // 2),
        lambda: b"git+https://" + b"a" * long + b"@h/x",
        lambda: b"\xff\xfe" + ("a\n" * (long // 4)).encode("utf-16-le"),
        lambda: b"\0" * long, lambda: b"${" * (long // 2), lambda: b"./" + b"../" * 999,
        lambda: b"./" + b"d/" * (long // 2),
        lambda: b"a @ file:" + b"%2e" * (long // 3), lambda: b"file://[" + b":" * 99,
        lambda: b"https://[::1\nb @ http://]/",
        lambda: b"a " + b"\t " * (long // 2) + b"#x", lambda: b"-r requirements.txt\n" * (long // 20),
        lambda: mutate.mutated(b"-e ./p\n-c c.txt\na @ git+ssh://git@h/x@v1#egg=a\n", random),
        lambda: b"p/\n" * (long // 3),
        lambda: "é\u2028\x85\n".encode() * 99, lambda: b"a @ https://h:99999999/x\nb @ https://h:x/\n",
    ))()  # fmt: skip


def _toml(random):
    """A pyproject.toml."""
    long = random.choice(_LONG)
    good = (
        '[project]\nname = "odd"\nversion = "1.0"\ndependencies = ["tqdm>4"]\n[project.optional-dependencies]\n'
        'x = ["numpy"]\n[tool.uv.sources]\na = { path = "p" }\n[[tool.uv.index]]\nurl = "https://h/simple"\n'
    )
    return random.choice((
        lambda: good, lambda: "a = " + "[" * long, lambda: good + "b = " + "{x=" * 900,
        lambda: "a." * (long // 2) + "b=1",
        lambda: "a=1\n" + "".join(f"[t{n}]\n" for n in range(long // 8)),
        lambda: "[" + "a." * 40 + "b]\n" + "x=1\n" * 9,
        lambda: good.replace('"tqdm>4"', '"tqdm>4",' * (long // 9)), lambda: good.replace("tqdm>4", "a" * long),
        lambda: good.replace("tqdm>4", "a @ git+https://h/" + "x" * 4000), lambda: "a = '''" + "x\n" * (long // 2),
        lambda: good.replace('["tqdm>4"]', random.choice(("7", "{}", "[[]]", "[7]", "nan", "1979-05-27", '"x"'))),
        lambda: good.replace('"1.0"', random.choice(("9" * 5000, "1e999", "[]", "inf", '"' + "1." * 4000 + '"'))),
        lambda: "".join(f"a{n}.b.c.d = {n}\n" for n in range(long // 20)), lambda: "a = 1" + "0" * 5000,
        lambda: "a = 0x" + "f" * long,
        lambda: "a = 1" + "_0" * (long // 2), lambda: 'a = "' + "\\U0010ffff" * (long // 10) + '"', lambda: "\x00" * 9,
        lambda: good.replace("[project]", "[project]\ndynamic = 7"),
        lambda: good.replace("{ path = \"p\" }", "[" + "{}," * 9000 + "]"),
        lambda: "a = [" + "1," * (long // 2) + "]",
        lambda: "a = {" + ",".join(f"k{n}=1" for n in range(long // 8)) + "}",
        lambda: "a=2020-01-01T00:00:00." + "9" * long, lambda: ("\"a" + "a" * 40 + "\".") * 60 + "b = 1",
        lambda: good + "\n" * long,
        lambda: mutate.mutated(good.encode(), random).decode(errors="replace"), lambda: "[project]\n" * 2,
        lambda: '["a".b.]',
        lambda: "[build-system]\nrequires = [" + '"a @ file:x",' * 300 + "]\n" + good,
        lambda: "a = " + "[[1]," * (long // 5),
    ))().encode(errors="replace")[: 1 << 20]  # fmt: skip


def rules(random):
    """A folder with ignore rules, and file names that almost match them."""
    long = random.choice((200, 5_000, 100_000))
    names = random.choice((
        lambda: ["a" * 200, "a" * 100 + "b", "train.py"], lambda: ["/".join("a" * 60), "/".join("ab" * 40), "train.py"],
        lambda: [f"d{number % 40}/x{number}.py" for number in range(random.choice((300, 3000)))],
        lambda: ["\udcff\n", "é" * 100, "-", "[", "\\", "*", "!x", "#x", " x "],
    ))()  # fmt: skip
    line = random.choice((
        lambda: "*a" * (long // 2), lambda: "**/" * (long // 3) + "x", lambda: "**/a/" * (long // 5) + "b",
        lambda: "?" * long,
        lambda: "[" * long, lambda: "[a-" * (long // 3), lambda: "[[:alpha:]" * (long // 10),
        lambda: "\\" * long, lambda: "!" * long,
        lambda: "a/**/" * (long // 5) + "b", lambda: "*" * long, lambda: "/" * long,
        lambda: "../" * (long // 3), lambda: " " * long,
        lambda: "[!a]*" * (long // 5), lambda: "*?" * (long // 2), lambda: "[" + "a-z" * (long // 3) + "]",
        lambda: "{a,b}" * (long // 5),
        lambda: "".join(random.choice("ab*?[]!-/\\^: \udcff") for _ in range(random.choice((8, 40, 300)))),
    ))  # fmt: skip
    lines = [line() for _ in range(random.choice((1, 1, 30, 1900)))] if long < 1000 else [line()]
    text = "\n".join(lines).encode(errors="surrogateescape")[: 1 << 20]
    text = random.choice((text, text, b"!*\n" + text, text + b"\n!**/x\n", b"\n" * 900_000, b"\xef\xbb\xbf\xff" + text))
    folder = "" if random.random() < 0.7 else "d1/"
    return {
        **dict.fromkeys(names, b"x"),
        f"{folder}{random.choice(('.gitignore', '.gitignore', '.dockerignore'))}": text,
    }


def index(random):
    """A git work tree with an index that an attacker wrote."""
    count = random.choice((1, 3, 200, 20_000, 250_000))
    version = random.choice((2, 2, 3, 4))
    long = random.choice((0, 0, 50)) if count > 1000 else random.choice((0, 900, 4090, 70_000))
    head = struct.pack(">4sII", b"DIRC", version, random.choice((count, count, count, 2**32 - 1, 7)))
    stamp = struct.pack(">10I", *[random.choice((0, 5, 2**32 - 1))] * 6, 0o100644, 0, 0, 1) + b"\0" * 20
    parts = [head]
    for number in range(count):
        name = b"%06d" % number + b"n" * long
        if random.random() < 0.001:
            name = random.choice((b"../x", b".git/config", b"a//b", b"", b"\xff", b"a/" * 2000, b"/x", b"a\n"))
        flags = struct.pack(">H", min(len(name), 4095) | random.choice((0, 0x8000) if version == 2 else (0, 0)))
        row = stamp + flags + (b"\0" if version == 4 else b"") + name
        parts.append(row + b"\0" * (1 if version == 4 else 8 - len(row) % 8))
    data = b"".join(parts)
    data = random.choice((lambda: data, lambda: data[: random.randrange(len(data))],
    lambda: mutate.mutated(data[: 1 << 20], random),
                          lambda: head + b"\xff" * 300_000, lambda: data + b"x" * 20))()  # fmt: skip
    odd = random.choice(
        (b"ref: refs/heads/main\n", b"ref: refs/heads/" + b"x" * 4000, b"0" * 40, b"ref: HEAD", b"\0" * 9000)
    )
    settings = random.choice(
        (
            b"[core]\n",
            b"[core]\n" * 90_000,
            b"objectformat = sha256\n",
            b"filemode" + b" " * 900_000 + b"x",
            b"\n" * 200_000,
        )
    )
    refs = b"".join(b"%040d refs/heads/b%d\n" % (n, n) for n in range(random.choice((1, 100_000))))
    return {".git/HEAD": odd, ".git/config": settings, ".git/index": data, ".git/packed-refs": refs,
            ".git/objects/x": b"", ".git/refs/heads/main": b"0" * 40, "x.py": b"x", "000001": b"x"}  # fmt: skip


def settings(random):
    """A cluster.toml and an environment file."""
    long = random.choice((300, 5_000, 200_000))
    host = '[[hosts]]\nname = "a{0}"\naddress = "10.0.{0}.1"\nuser = "me"\nport = 22\n[hosts.environment]\nX{0} = "1"\n'
    good = host.format(1) + '[job]\nscript = "train.py"\ninclude = ["data"]\nmounts = ["/d:/d"]\nsecrets = []\n'
    text = random.choice((
        lambda: good, lambda: "".join(host.format(number) for number in range(random.choice((300, 9000)))),
        lambda: good.replace("10.0.1.1", "x" * long), lambda: good.replace("22", "9" * 4000),
        lambda: good.replace("train.py", "x " * long),
        lambda: good.replace('["data"]', "[" + '"d",' * long + "]"),
        lambda: good.replace('"/d:/d"', '"' + ":/d" * long + '"'),
        lambda: good + "".join(f"key{number} = 1\n" for number in range(long // 9)),
        lambda: _toml(random).decode(errors="replace"),
        lambda: good.replace("script", random.choice(("args", "memory", "env_files", "image", "x" * long))),
        lambda: good.replace('"train.py"', random.choice(("7", "[]", "{}", "nan", "[" * 60 + "]" * 60, '"\\u0000"'))),
        lambda: good.replace('"10.0.1.1"', '"a", gateway = "a1"'),
        lambda: mutate.mutated(good.encode(), random).decode(errors="replace"),
        lambda: host.format(1).replace("10.0.1.1", "fe80::1%" + "e" * long) + "\n" * 9,
    ))()  # fmt: skip
    variables = random.choice((
        lambda: b"A=1\nexport B='x y'\nC=${A}\n",
        lambda: b"".join(b"V%d=${V%d}\n" % (n + 1, n) for n in range(long // 12)),
        lambda: b"A=" + b"${A}" * (long // 4), lambda: b"A=x\n" + b"".join(b"A=${A}${A}\n" for _ in range(40)),
        lambda: b"A='" + b"\\'" * (long // 2), lambda: b'A="' + b"\n" * long,
        lambda: b"A=" + b"${" * (long // 2), lambda: b"A" * long,
        lambda: b"A=" + b" #" * (long // 2), lambda: b"A=${B:-" * (long // 7), lambda: b"#" * long,
        lambda: b"\n" * long,
        lambda: b"A=" + b" " * long + b"'", lambda: b"export " * (long // 7), lambda: b"=" * long,
        lambda: b"A\n" * (long // 2),
        lambda: b"A='x' " * (long // 6), lambda: b"\r" * long + b"A=1",
        lambda: mutate.mutated(b"A=1\nB='2'\nC=${A}\n", random),
    ))()  # fmt: skip
    return {"cluster.toml": text.encode(errors="replace"), ".env": variables}


def script(random):
    """A script and the command that starts it."""
    long = random.choice((300, 5_000, 120_000))
    code = random.choice((
        lambda: "(" * long, lambda: "-" * long + "1", lambda: "x = " + "a." * (long // 2) + "b",
        lambda: "a = " + "[" * 90 + "]" * 90,
        lambda: "import torch\nimport os\nos.environ['MASTER_ADDR'] = 'localhost'\n" * (long // 80),
        lambda: "a=1\n" * (long // 4),
        lambda: "".join(f"{' ' * n}if x:\n" for n in range(99)) + " " * 99 + "pass", lambda: "f'{" * 90,
        lambda: "\0" + "x" * long,
        lambda: "x = " + "1+" * (long // 2) + "1", lambda: "# torchrun" + " torchrun" * (long // 9),
        lambda: "\\\n" * (long // 2),
        lambda: "def f():\n" + " x = lambda: 1\n" * (long // 15),
        lambda: "x = '" + "tcp://a" * (long // 7) + "'", lambda: "é=1;" * (long // 5),
        lambda: "a = " + "9" * long, lambda: "elif " * 9,
        lambda: "torchrun" + " \\\n" * (long // 3) + " --standalone x",
        lambda: "if x: pass\n" + "elif x: pass\n" * (long // 13), lambda: "x(" * 95 + ")" * 95,
        lambda: "from a import b\n" * (long // 16),
    ))()  # fmt: skip
    command = random.choice((
        lambda: "train.py", lambda: "torchrun --nproc-per-node 4 train.py " + "-x " * long,
        lambda: "bash run.sh", lambda: "x" * long,
        lambda: "'" * 999, lambda: "a;" * (long // 2), lambda: "'a" * long, lambda: "\\" * long,
        lambda: "$(" * long, lambda: "--" * long,
        lambda: "nohup " * (long // 6) + "x", lambda: "accelerate launch " * 300 + "train.py",
        lambda: "python -m " * 300, lambda: "&" * long,
        lambda: mutate.mutated(b"torchrun --nnodes=2 train.py --lr 0.1 > log 2>&1 &", random).decode(errors="replace"),
    ))()  # fmt: skip
    data = code.encode(errors="replace")
    return {"train.py": data, "command": command.encode(errors="replace")}


def claims(random):
    """A host's answer about its GPUs and claims, and other runs' claims as a node on that host sees them."""
    good = {"token": "ff", "run": "r1", "user": "bob", "control": "h", "gpus": ["GPU-1"], "waits": False,
            "whole": False, "state": "runs", "why": "x", "returns": True, "number": 7}  # fmt: skip
    one = crafted.planted(json.dumps(good), random)[: 4 << 20]
    count = random.choice((3, 300, 5000)) if len(one) < 2000 else 3
    rows = [b"claim %d ff bob %s" % (number, one.replace(b"\n", b" ")) for number in range(count)]
    given = b"given " + crafted.planted(
        '["/a", "running", "r1", "bob", "", [{"Count": -1, "DeviceIDs": ["GPU-1"]}], ""]', random
    )
    text = (
        random.choice(samples.GPUS).encode()
        + b"\n"
        + b"\n".join([*rows, given.replace(b"\n", b" ")] * (random.choice((1, 1, 30)) if len(one) < 2000 else 1))
    )
    text = mutate.mutated(text[: 1 << 20], random) if random.random() < 0.4 else text[: 16 << 20]
    number = {f"claims/run-{n}-ff{n:x}": one.replace(b'"ff"', b'"ff%x"' % n) for n in range(count)}
    return {"answer": text, **number, "claims/run-1-1": one, "claims/run-1-1.lock": b""}


def installed(random):
    """What the packages program answers: about the base, about builds, about an install."""
    need = random.choice(
        ("tqdm>4", "a" + "[x" * 900, "a" + " " * 3900 + "!", "a (" + "1," * 1900, "a @ file:///etc", "a;" + "'" * 3900)
    )
    package = {"name": "torch", "version": "2.5.1+cpu", "requires": [need] * random.choice((1, 900)), "extras": ["x"]}
    packages = [package, *({**package, "name": f"p{number}"} for number in range(random.choice((1, 40, 4990))))]
    packages = packages[: 40 if len(need) > 100 and len(package["requires"]) > 1 else None]
    base = {"python": "3.11.7", "platform": {"machine": "x86_64", "libc": ["glibc", "2.36"]}, "base": packages}
    built = {
        "key": "0" * 32,
        "wheel": WHEEL,
        "sha256": "0" * 64,
        "name": "odd",
        "version": "1",
        "requires": [need],
        "extras": [],
    }
    done = random.choice((base, base, {"built": [built] * random.choice((1, 1500))}, {"digest": "0" * 64, "size": 5}))
    lines = [b'{"say": "building"}'] * random.choice((1, 50_000)) + [
        crafted.planted(json.dumps({"done": done}), random)
    ]
    lines.insert(
        0,
        random.choice(
            (b"", b"{" * 900, b'{"failed": 1e999}', b'{"failed": 1, "words": ' + b'"x' * 9, b"x" * (1 << 20))
        ),
    )
    return {
        "answer": b"\n".join(line.replace(b"\n", b" ") for line in lines)[: 16 << 20]
    }  # a session's limit for an answer


def offered(random):
    """What uv wrote about an index: a lock and a pylock.toml."""
    row = ('[[packages]]\nname = "a{0}"\nversion = "1.0"\nsdist = { url = "https://h/a.tar.gz", hashes = '
           '{ sha256 = "{1}" } }\nwheels = [{ url = "https://h/a.whl", hashes = { sha256 = "{1}" } }]\n').replace(
        "{1}", "0" * 64)  # fmt: skip
    count = random.choice((1, 30, 1500))
    text = "lock-version = '1.0'\n" + "".join(row.replace("{0}", str(number)) for number in range(count))
    odd = random.choice(
        (
            *("7", "[]", "{}", '"x"', "nan", "[7]", "[" * 40 + "]" * 40, '"' + "x" * 90_000 + '"', "[{}]"),
            *("{ sha256 = [] }", "{ sha256 = 7 }", '"https://["', '"https://h:99999/a.whl"', "[{ url = 7 }]"),
        )
    )
    old = random.choice(
        (
            '"' + "0" * 64 + '"',
            '{ sha256 = "' + "0" * 64 + '" }',
            '"https://h/a.whl"',
            '"1.0"',
            '"a0"',
            '[{ url = "https://h/a.whl", hashes = { sha256 = "' + "0" * 64 + '" } }]',
        )
    )
    text = random.choice(
        (text, text.replace(old, odd, 1), text.replace(old, odd), _toml(random).decode(errors="replace"))
    )
    digests = "".join(f" \\\n    {_HASH}" for _ in range(random.choice((1, 3, 400))))
    lines = "".join(f"a{number}==1.0{digests if number < 30 else ''}\n" for number in range(count))
    lines = random.choice((lines, lines, f"a0=={'1.' * 90_000}x\n", "a0 @ file:///x\n", "a" + "[x]" * 90_000 + "==1\n",
                           "\\\n" * 90_000, "a\n" * 3_000_000, "aa==1\n" * 190_000,
                           "\x0c" * 3_000_000, f"a0==1.0{digests}\n" * 1000,
                           mutate.mutated(lines.encode()[: 1 << 18], random).decode(errors="replace")))  # fmt: skip
    return {"pylock.toml": text.encode(errors="replace"), "lock.txt": lines.encode(errors="replace")}
