"""Secrets that are planted in a project and its user's settings, one for each way in; and the project itself.

The project's script prints, saves and raises what it has, in the ways that real scripts do.
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

SCRIPT = """
import base64, csv, os, sys, time, urllib.parse
names = ["PLAIN", "QUOTED", "LINES", "FROM_SHELL", "FROM_FILE", "HF_TOKEN", "HOOK"]
for name in names:
    print(name, os.environ.get(name), flush=True)
print(os.environ.get("FROM_STDERR"), file=sys.stderr, flush=True)
account = "/run/secrets/account.json"
print(open(account).read() if os.path.exists(account) else "no account", flush=True)
split, tagged = os.environ.get("SPLIT", ""), os.environ.get("TAGGED", "")
sys.stdout.write("split " + split[:11]); sys.stdout.flush(); time.sleep(0.3)
sys.stdout.write(split[11:] + "\\n"); sys.stdout.flush()
with open("metrics.csv", "w") as file:
    rows = csv.writer(file)
    rows.writerow(["step", "loss/" + tagged])
    rows.writerows([[step, 1 / (step + 1)] for step in range(20)])
time.sleep(10)
encoded = os.environ.get("ENCODED", "").encode()
login = base64.b64encode(b"me:" + encoded).decode()
raise OSError(f"401 of https://me:{urllib.parse.quote_from_bytes(encoded)}@example.org, Authorization: Basic {login}")
"""
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n"


@dataclass(frozen=True)
class Plant:
    """One secret: how it comes in, its value, and what else would give it away. `refused`: no run may begin with it."""

    way: str
    value: str
    forms: tuple[str, ...] = ()
    refused: bool = False

    @property
    def traces(self) -> tuple[str, ...]:
        """The texts that nobody may find."""
        return (self.value, *self.forms)


WAYS = {
    "PLAIN": "a line of .env",
    "QUOTED": "a quoted line of .env with export",
    "LINES": "a value of several lines in .env",
    "FROM_SHELL": "a variable of the shell (--secret NAME)",
    "FROM_FILE": "a file in the folder (--secret NAME=FILE)",
    "ACCOUNT": "a secret file (--secret-file)",
    "HF_TOKEN": "the token of ~/.cache/huggingface",
    "FROM_STDERR": "printed to standard error",
    "SPLIT": "printed in two pieces",
    "ENCODED": "in a traceback, in a URL and in base64",
    "TAGGED": "the name of a metric in a file",
    "HOOK": "printed by --on-end",
    "KEY": "a private key in the folder",
    "NETRC": "a .netrc in the folder",
    "REMOTE": "the URL of a git remote",
    "CHANGED": "in a changed file of the git folder, and in the shell",
    "INDEX": "an index of pip's settings",
    "NEEDS": "an index in requirements.txt",
    "SOURCE": "a git source in requirements.txt",
    "PROXY": "the URL of a proxy",
    "WANDB_API_KEY": "--env with a key's value",
    "IN_ARGUMENT": "an argument of the script, from the shell",
    "IN_CLUSTER": "environment of cluster.toml",
}  # fmt: skip
REFUSED = ("WANDB_API_KEY", "IN_ARGUMENT", "IN_CLUSTER")


def plants(side: str) -> dict[str, Plant]:
    """A value for each way, which stands nowhere else."""
    values = {name: f"sesame-{side}-{uuid.uuid4().hex[:12]}" for name in WAYS}
    values["QUOTED"] += " 'or' two"
    values["KEY"] = base64.b64encode(values["KEY"].encode()).decode()
    values["ENCODED"] += "/+x"
    made = {name: Plant(way, values[name], refused=name in REFUSED) for name, way in WAYS.items()}
    encoded = values["ENCODED"]
    basic = base64.b64encode(f"me:{encoded}".encode()).decode()
    forms = (quote(encoded, safe=""), quote(encoded), basic[6:30])
    return {**made, "ENCODED": Plant(WAYS["ENCODED"], encoded, forms)}


def project(folder: Path, own: dict[str, Plant], needs: str) -> None:
    """A git repository with the script; `needs`: its requirements. What a user has beside it goes into its parent."""
    value = {name: plant.value for name, plant in own.items()}
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "config.py").write_text("KEY = ''\n")
    (folder / ".gitignore").write_text(".env\n")
    git = ["git", "-C", str(folder), "-c", "user.name=me", "-c", "user.email=me@example.org"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "begin"],
                  ["remote", "add", "origin", f"https://me:{value['REMOTE']}@example.org/project.git"]):  # fmt: skip
        subprocess.run([*git, *words], check=True, capture_output=True)
    (folder / "config.py").write_text(f"KEY = '{value['CHANGED']}'\n")
    (folder / "requirements.txt").write_text(needs)
    (folder / ".netrc").write_text(f"machine example.org login me password {value['NETRC']}\n")
    (folder / "deploy_key").write_text(KEY.format(value["KEY"]))
    (folder / "token.txt").write_text(value["FROM_FILE"] + "\n")
    (folder / ".env").write_text(
        f'# settings\nPLAIN={value["PLAIN"]}\nexport QUOTED="{value["QUOTED"]}"\n'
        f'LINES="first line of it\n{value["LINES"]}\nlast line of it"\n'
        + "".join(f"{name}={value[name]}\n" for name in ("FROM_STDERR", "SPLIT", "ENCODED", "TAGGED", "HOOK"))
    )
    (folder.parent / "account.json").write_text(f'{{"key": "{value["ACCOUNT"]}"}}\n')
    (folder.parent / "hf-token").write_text(value["HF_TOKEN"])
