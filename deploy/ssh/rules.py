"""What each SSH setting means for Muster: honoured, irrelevant, or refused by name. Pure: an answer in, a Way out.

docs/ssh.md says the same for users. A keyword without a rule is refused if its value differs from OpenSSH's default,
because it may protect something.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import NoReturn

from ..core.errors import UsageError
from . import tokens as tokens
from . import user_file
from .ask import Answer, Place
from .keywords import HONOURED, INSTEAD, NO_MATTER, OURS, SAME
from .way import Algorithms, Client, Login, Trust, Way, trust_names

CONNECT_TIMEOUT_S = 10
# With one of these, ssh may take a host key without a person's look at it.
_TRUSTING = ("nohostauthenticationforlocalhost", "verifyhostkeydns")


class Rules:
    """The rules, with OpenSSH's defaults to compare with. `for_ssh`: the user's own ssh logs in, not paramiko."""

    def __init__(self, defaults: Answer, for_ssh: bool = False) -> None:
        self._defaults, self._for_ssh = defaults, for_ssh
        # Newer versions of ssh print these paths expanded.
        self._expanded = self.value(defaults, "userknownhostsfile", "").startswith("/")

    def way(self, place: Place, answer: Answer, before: Way | None, line: tuple[str, ...] = ()) -> Way:
        """The way to a place; `line`: the user's own ssh. Raises UsageError for a setting that cannot be honoured.

        Where the user's ssh holds a connection open, it has honoured the settings itself.
        """
        client = self._client(place, answer, before, line) if line else None
        refusal = None
        try:
            self._refuse(place, answer)
            algorithms = self._algorithms(place, answer)
        except UsageError as fault:
            by_ssh = client and (self._for_ssh or client.opened)
            if not by_ssh or self.value(answer, "knownhostscommand"):
                raise
            refusal, algorithms = fault, Algorithms((), (), (), (), False)
        host, user, port = answer["hostname"][0], answer["user"][0], int(answer["port"][0])
        alias = self.value(answer, "hostkeyalias") or None
        server = tokens.of_server(place.name, host, port, user)
        try:
            proxy = tokens.expand(self.value(answer, "proxycommand"), server) or None
            login = self._login(place, answer, tokens.of_path(server, alias))
            trust = self._trust(place, answer, trust_names(alias, host, port), tokens.of_path(server, alias))
        except ValueError as fault:
            raise UsageError(
                f"{place.name}: its SSH settings: {fault}", f"`{user_file.ssh()} -G {place.name}` shows them"
            ) from fault
        timeout = self.value(answer, "connecttimeout")
        return Way(
            name=place.name,
            host=host,
            port=port,
            user=user,
            before=before,
            proxy=proxy,
            family={"inet": 4, "inet6": 6}.get(self.value(answer, "addressfamily"), 0),
            bind=self.value(answer, "bindaddress") or None,
            timeout_s=float(timeout) if timeout.isdecimal() and int(timeout) else CONNECT_TIMEOUT_S,
            algorithms=algorithms,
            login=login,
            trust=trust,
            client=client,
            refusal=refusal,
        )

    @staticmethod
    def jumps(place: Place, answer: Answer) -> str | None:
        """The jump hosts before a place, as ProxyJump writes them. Raises UsageError."""
        jumps = Rules.value(answer, "proxyjump")
        tokens_here = tokens.of_server(place.name, answer["hostname"][0], int(answer["port"][0]), answer["user"][0])
        try:
            return tokens.expand(jumps, tokens_here) or None
        except ValueError as fault:
            raise UsageError(
                f"{place.name}: its ProxyJump: {fault}", f"`{user_file.ssh()} -G {place.name}` shows it"
            ) from fault

    @staticmethod
    def value(answer: Answer, keyword: str, missing: str = "") -> str:
        """A setting's value; `missing` if it has none."""
        value = answer.get(keyword, (missing,))[0]
        return missing if value == "none" else value

    def _client(self, place: Place, answer: Answer, before: Way | None, line: tuple[str, ...]) -> Client:
        """The user's own ssh, and the sockets of connections that it may hold open."""
        server = [answer[keyword][0] for keyword in ("hostname", "port", "user")]
        through = str(before.endpoint) if before else self.value(answer, "proxycommand")
        name = hashlib.sha256("\0".join([*server, through]).encode()).hexdigest()[:16]
        strict = self.value(answer, "stricthostkeychecking", "ask") in ("true", "yes", "ask")
        strict = strict and all(self.value(answer, keyword, "no") in ("no", "false") for keyword in _TRUSTING)
        users = self.value(answer, "controlpath") if strict and not self.value(answer, "knownhostscommand") else ""
        return Client(line, place.name, f"{tokens.home()}/.ssh/muster-{name}", users)

    def _refuse(self, place: Place, answer: Answer) -> None:
        for keyword, lines in answer.items():
            known = keyword in HONOURED or keyword in NO_MATTER
            if not known and lines != self._defaults.get(keyword) and lines != ("none",):
                refuse(place, keyword, " ".join(lines))
        if self.value(answer, "pubkeyauthentication") in ("no", "false"):
            refuse(place, "pubkeyauthentication", "no")
        preferred = answer.get("preferredauthentications")
        if preferred and "publickey" not in preferred[0].split(","):
            refuse(place, "preferredauthentications", preferred[0])
        if self.value(answer, "proxycommand") and self.value(answer, "proxyusefdpass") == "yes":
            refuse(place, "proxyusefdpass", "yes")
        forwards = any(answer.get(f"{kind}forward") for kind in ("local", "remote", "dynamic"))
        opens = forwards and self.value(answer, "clearallforwardings") != "yes"
        if opens and self.value(answer, "exitonforwardfailure") == "yes":
            refuse(place, "exitonforwardfailure", "yes")

    def _algorithms(self, place: Place, answer: Answer) -> Algorithms:
        ciphers, macs, kex, keys = (self._agreed(place, answer, keyword) for keyword in OURS)
        return Algorithms(ciphers, macs, kex, keys, self._known_first(answer))

    def _agreed(self, place: Place, answer: Answer, keyword: str) -> tuple[str, ...]:
        """The algorithms that the settings allow and paramiko has: in our order, or in the user's own."""
        setting = self.value(answer, keyword)
        allowed = list(dict.fromkeys(SAME.get(name, name) for name in setting.split(",")))
        both = tuple(name for name in allowed if name in OURS[keyword])
        if not both:
            instead = f"allow one of these for this host: {','.join(OURS[keyword])}"
            refuse(place, keyword, setting, instead)
        if answer.get(keyword) == self._defaults.get(keyword):
            return tuple(name for name in OURS[keyword] if name in both)
        return both

    def _known_first(self, answer: Answer) -> bool:
        """Whether key types in known_hosts go first: not if the user wrote a list.

        `ssh -G` shows `-x` and `+x` as the whole list: most of OpenSSH's own in its order, then what was added.
        """
        usual = self.value(self._defaults, "hostkeyalgorithms").split(",")
        names = self.value(answer, "hostkeyalgorithms").split(",")
        usual_names = [name for name in names if name in usual]
        return usual_names == [name for name in usual if name in names] and 2 * len(usual_names) > len(usual)

    def _login(self, place: Place, answer: Answer, named: Mapping[str, str]) -> Login:
        files = [line for line in answer.get("identityfile", ()) if line != "none"]
        accepted = self.value(answer, "pubkeyacceptedalgorithms")
        certificates = [line for line in answer.get("certificatefile", ()) if line != "none"]
        return Login(
            files=tuple(tokens.path(line, named) for line in files),
            certificates=tuple(tokens.path(line, named) for line in certificates),
            agent=self._agent(answer, named),
            only_files=self.value(answer, "identitiesonly") == "yes",
            named=answer.get("identityfile") != self._defaults.get("identityfile"),
            accepted=tuple((accepted or self.value(answer, "pubkeyacceptedkeytypes")).split(",")),
            least_rsa=self._least_rsa(answer),
        )

    def _agent(self, answer: Answer, named: Mapping[str, str]) -> str | None:
        """The agent's socket: from the variable in `$NAME`, or from SSH_AUTH_SOCK, which is also the default."""
        setting = answer.get("identityagent", ("SSH_AUTH_SOCK",))[0]
        if setting == "none":
            return None
        if setting == "SSH_AUTH_SOCK" or (setting.startswith("$") and not setting.startswith("${")):
            return os.environ.get(setting.removeprefix("$")) or None
        return setting if self._expanded else tokens.path(setting, named)

    def _trust(self, place: Place, answer: Answer, names: tuple[str, str | None], named: Mapping[str, str]) -> Trust:
        users = self._files(place, answer, "userknownhostsfile")
        return Trust(
            name=names[0],
            bare=names[1],
            user_files=users if self._expanded else tuple(tokens.path(file, named) for file in users),
            system_files=self._files(place, answer, "globalknownhostsfile"),
            revoked=self._revoked(place, answer),
            hashed=self.value(answer, "hashknownhosts") == "yes",
            check_ip=self.value(answer, "checkhostip") == "yes",
            least_rsa=self._least_rsa(answer),
        )

    def _files(self, place: Place, answer: Answer, keyword: str) -> tuple[str, ...]:
        """The files of a line. `ssh -G` prints it without quotes, so a path with a blank looks like two."""
        lines = answer.get(keyword, ())
        if keyword == "userknownhostsfile" and lines == self._defaults.get(keyword):
            return tuple(f"{tokens.home()}/.ssh/{name}" for name in ("known_hosts", "known_hosts2"))
        words = [word for word in " ".join(lines).split(" ") if word and word.lower() != "none"]
        for first in range(len(words)):
            for end in range(first + 2, len(words) + 1):
                if os.path.lexists(tokens.tilde(" ".join(words[first:end]))):
                    refuse(place, keyword, " ".join(words), "give the file a path without blanks")
        return tuple(words)

    def _revoked(self, place: Place, answer: Answer) -> str | None:
        file = self.value(answer, "revokedhostkeys")
        if file and not os.access(file, os.R_OK):
            refuse(place, "revokedhostkeys", f"{file}, which cannot be read")
        return file or None

    def _least_rsa(self, answer: Answer) -> int:
        bits = self.value(answer, "requiredrsasize") or self.value(answer, "rsaminsize")
        return max(1024, int(bits)) if bits.isdecimal() else 1024


def refuse(place: Place, keyword: str, value: str, instead: str = "") -> NoReturn:
    """Raise UsageError: a setting that Muster cannot honour, by name."""
    shown = f"{keyword} {value}".encode(errors="replace").decode()
    usual = f"`{user_file.ssh()} -G {place.name}` shows it; take it out for this host"
    raise UsageError(
        f"{place.name}: its SSH settings say `{shown}`, which Muster does not honour",
        instead or INSTEAD.get(keyword, usual),
    )
