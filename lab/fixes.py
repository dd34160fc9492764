"""Follow a printed fix to the letter: take out its commands and the hosts on which they are to be run.

The format of a fix: on a and b: COMMAND; COMMAND   (a remark); on c: COMMAND; or on d: COMMAND
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Commands that change something. All other parts of a fix only look, or ask a person.
CHANGES = re.compile(
    r"(?:sudo )?(?:ip6?tables -(?!S|v)|ip (?:-6 )?(?:link set|addr add|route replace|neigh del|rule add)|sysctl -w"
    r"|sed -Ei|hostnamectl set-hostname|timedatectl set|ethtool -K|kill )|echo |export |unset "
)
ON = re.compile(r"(?:^|; |, )(or )?on ([\w.-]+(?:(?:, | and )[\w.-]+)*): ")
REMARK = re.compile(r"   \(.*?\)(?=;|$)")
INTERFACE = re.compile(r'interface = "([\w.-]+)" for ([\w.-]+) in cluster\.toml')
ENDPOINT = re.compile(r"--rdzv-endpoint (\S+):\d+")
UNSET, SET = (
    re.compile(r"unset (\w+) on ([\w.-]+(?:(?:, | and )[\w.-]+)*)"),
    re.compile(r"set (\w+) = (\S+) for ([\w.-]+(?:(?:, | and )[\w.-]+)*)"),
)
ULIMIT = re.compile(r"docker run --ulimit (\w+)=-?\d+")


@dataclass(frozen=True)
class Step:
    """Commands for one host; `other`: to be run only if the steps before did not help."""

    host: str
    commands: tuple[str, ...]
    other: bool = False


def steps(fix: str) -> list[Step]:
    """The commands in a fix that change something, in order."""
    text = REMARK.sub("", fix)
    places = list(ON.finditer(text))
    found = []
    for place, after in zip(places, [*places[1:], None], strict=False):
        words = text[place.end() : after.start() if after else len(text)]
        commands = tuple(part for part in re.split(r"; ", words) if CHANGES.match(part) and "<" not in part)
        if commands:
            hosts = re.split(r", | and ", place[2])
            found += [Step(host, commands, bool(place[1])) for host in hosts]
    return found


def settings(fix: str) -> dict[str, str]:
    """The settings in a fix for starting the run: `interface HOST`, `endpoint`, `ulimit NAME`, `VARIABLE HOST`."""
    text = REMARK.sub("", fix)
    said = {f"interface {host}": name for name, host in INTERFACE.findall(text)}
    said |= {"endpoint": match[1]} if (match := ENDPOINT.search(text)) else {}
    for name, hosts in UNSET.findall(text):
        said |= {f"{name} {host}": "" for host in re.split(r", | and ", hosts)}
    for name, value, hosts in SET.findall(text):
        said |= {f"{name} {host}": value.rstrip(",") for host in re.split(r", | and ", hosts)}
    return said | {f"ulimit {name}": "-1" for name in ULIMIT.findall(text)}
