"""`muster clean` lists what is kept and removes what is named, but nothing that a run uses or another user owns."""

from __future__ import annotations

import json
import uuid

from tests.cluster.control import BASE

COUNTS = """
import os, pathlib, sys, time
place = pathlib.Path(os.environ["HF_HOME"])
place.mkdir(parents=True, exist_ok=True)
(place / "weights").write_text(str(int((place / "weights").read_text()) + 1 if (place / "weights").exists() else 0))
print("seen", (place / "weights").read_text(), os.environ["TRITON_CACHE_DIR"], flush=True)
pathlib.Path("/out/result").write_text("1")
while "--stay" in sys.argv and not os.path.exists("/muster/run/end"):
    time.sleep(0.1)
"""


def kept(control):
    done = control.fab("clean", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(row["host"], row["what"], row["name"]): row for row in rows if row["kind"] == "kept"}


def test_caches_and_made_folders_stay_for_the_next_run_and_clean_removes_what_is_named(control, tmp_path):
    control.hosts = control.rack.hosts[:1]
    (host,) = control.hosts
    folder = tmp_path / f"code-{control.run}"
    folder.mkdir()
    (folder / "train.py").write_text(COUNTS)
    tag, made = f"muster-{folder.name}:latest", f"/home/muster/made-{control.run}"
    control.rack.root(host, "rm", "-rf", "/home/muster/.muster/cache")
    words = ("--image", BASE, "--folder", str(folder), "--mount", f"{made}/deep:/out:create")
    packages = f"muster-packages-1000-{uuid.uuid4().hex}"
    labels = "--label muster.packages=x --label muster.user=muster"
    control.rack.on(host, f"docker volume create {labels} {packages}")
    # Package caches by their present names and, last, by a former name that nothing reads any more.
    kinds = [f"muster-cache-{name}-{uuid.uuid4().hex}" for name in ("packages-1000", "tools-1000", "wheels-1000")]
    cached = {(host, "caches", name) for name in (*kinds, "muster-cache-packages-1000")}
    for _, _, name in cached:
        control.rack.on(host, f"docker volume create --label muster.cache=packages --label muster.user=muster {name}")
    first = control.fab("deploy", "--run", control.run, *words, "--script", "train.py")
    assert first.returncode == 0, first.stderr
    assert "seen 0 /muster/cache/triton" in first.stdout
    assert f"{host}: made {made}/deep" in first.stderr
    fill = f"docker run --rm --volume {packages}:/v --user 0:0 --entrypoint dd {tag} if=/dev/zero of=/v/x bs=1M count=4"
    control.rack.on(host, fill)
    living = f"{control.run}-b"
    second = control.fab("deploy", "--run", living, *words, "--script", "train.py --stay", "--detach")
    assert second.returncode == 0, second.stderr
    there = kept(control)
    (cache,) = [name for on, what, name in there if what == "caches" and name.endswith("/huggingface")]
    assert there[host, "runs", control.run]["used"] is False
    assert there[host, "runs", living]["used"] is there[host, "caches", cache]["used"] is True
    assert there[host, "images", tag]["used"] is True
    assert there[host, "packages", packages]["bytes"] > 3 << 20, "a volume's size is counted"
    assert cached <= there.keys()
    assert all(there[name]["bytes"] is not None for name in cached)
    asked = control.fab("clean", "--caches")
    assert asked.returncode == 2, "what builds left is in no use, and nobody is there to ask"
    assert "stays" in asked.stderr
    refused = control.fab("clean", "--runs", control.run)
    assert refused.returncode == 2, "nobody is there to ask"
    done = control.fab("clean", "--runs", control.run, "--images", "--caches", "--yes")
    assert done.returncode == 0, done.stderr
    after = kept(control)
    assert (host, "runs", control.run) not in after
    assert not cached & after.keys()
    assert {(host, "runs", living), (host, "images", tag), (host, "caches", cache)} <= after.keys()
    control.rack.on(host, f"touch ~/.muster/runs/{living}/end")
    assert control.fab("down", "--run", living).returncode == 0
    done = control.fab("clean", "--runs", living, "--images", "--packages", "--caches", "--yes")
    assert done.returncode == 0, done.stderr
    gone = {(host, "runs", living), (host, "images", tag), (host, "packages", packages), (host, "caches", cache)}
    assert not gone & kept(control).keys()
    assert control.rack.on(host, f"cat {made}/deep/result") == "1", "the user's own folder stays"
    control.rack.root(host, "rm", "-rf", made)
