"""Constructs from users' SSH settings, for test_like_openssh.py: each with how OpenSSH and Muster treat it.

`in`: both log in. `out`: neither does. `stricter`: OpenSSH logs in, Muster refuses. `ignored`: OpenSSH fails because
of something that Muster never does. For these last two, `word` occurs in docs/reference/ssh.md.
In the text: {port} is the server's, {door} and {middle} are jump hosts', {dead} is a port where nobody listens, {x} is
the construct's folder with `known_hosts` in it, {keys} is the folder of keys, {me} is the user who runs the tests, and
{agent} is an agent's socket.
"""

from typing import NamedTuple


class Construct(NamedTuple):
    """Settings placed before the usual ones; `known` replaces known_hosts, `files` are added to the folder.

    `bare`: without the usual key and known_hosts. `agent`: whether SSH_AUTH_SOCK points to an agent.
    """

    name: str
    text: str
    outcome: str
    word: str = ""
    known: str = "{all}"
    files: tuple[tuple[str, str], ...] = ()
    bare: bool = False
    agent: bool = False


IN, OUT, STRICTER, IGNORED = "in", "out", "stricter", "ignored"
DEAD = "\n Port {dead}\n"
KEY = "\nIdentityFile {keys}/"

C = Construct
MATCHING = (
    C("nothing of note", "", IN),
    C("match host of a HostName", "Host node\n HostName 127.0.0.1\nMatch host 127.0.0.1" + DEAD, OUT),
    C("match host of another", "Match host other" + DEAD, IN),
    C("match originalhost", "Match originalhost node" + DEAD, OUT),
    C("match exec that is true", 'Match exec "test %n = node"' + DEAD, OUT),
    C("match exec that is false", 'Match exec "test %n = other"' + DEAD, IN),
    C("match localuser", "Match localuser {me}" + DEAD, OUT),
    C("match another localuser", "Match localuser nobody-here" + DEAD, IN),
    C("match user", "Match user {me}" + DEAD, OUT),
    C("match user of another section", "Host node\n User nobody-here\nMatch user nobody-here" + DEAD, OUT),
    C("match final", "Match final host 127.0.0.1\n PubkeyAuthentication no\n", OUT),
    C("match canonical", "Match canonical host node" + DEAD, IN),
    C("match with two criteria", "Match host node user nobody-here" + DEAD, IN),
    C("match negated criterion", "Match !host other" + DEAD, OUT),
    C("match negated pattern", "Match host *,!node" + DEAD, IN),
    C("match all", "Match all" + DEAD, OUT),
    C("match tagged, or not known yet", "Match tagged slow" + DEAD, OUT),
    C("match of a criterion nobody knows", "Match moon full" + DEAD, OUT),
    C("host negated", "Host * !node" + DEAD, IN),
    C("host with wildcard", "Host n?d*" + DEAD, OUT),
    C("host with brackets, which mean nothing", "Host [n]ode" + DEAD, IN),
    C("host with commas, which mean nothing", "Host other,node" + DEAD, IN),
    C("host in quotes", 'Host "node"' + DEAD, OUT),
    C("host in capitals", "Host NODE" + DEAD, IN),
    C("keywords in capitals, with =", "hOsT = node\n PORT={dead}\n", OUT),
    C("value in quotes", 'Port "{dead}"\n', OUT),
    C("comment after a value", "Port {dead} # no more\n", OUT),
    C("lines that end as on Windows", "Host node\r\n Port {dead}\r\n", OUT),
    C("include in another section", "Host other\n Include {x}/more\n", IN, files=(("more", "Port {dead}\n"),)),
    C("include in this section", "Host node\n Include {x}/more\n", OUT, files=(("more", "Port {dead}\n"),)),
    C("include in a match", "Match host other\n Include {x}/more\n", IN, files=(("more", "Port {dead}\n"),)),
    C("include by pattern", "Include {x}/*.conf\n", OUT, files=(("a.conf", ""), ("b.conf", "Host node" + DEAD))),
    C("include with a section of its own, before more lines", "Host other\n Include {x}/more\n Port {dead}\n", IN,
      files=(("more", "Host *\n User nobody-here\n"),)),
    C("include of nothing", "Include {x}/nowhere\n", IN),
    C("include of itself", "Include {x}/config\n", OUT),
    C("an option nobody knows", "Moon full\n", OUT),
    C("an option nobody knows, ignored", "IgnoreUnknown Moon\nMoon full\n", IN),
    C("port out of range", "Port 70000\n", OUT),
    C("another user", "User nobody-here\n", OUT),
    C("HostName with a token", "HostName %h.invalid\n", OUT),
    C("canonical domains without a way back", "CanonicalizeHostname yes\nCanonicalDomains invalid\n"
      "CanonicalizeFallbackLocal no\nHost node\n HostName nowhere\n", OUT),
    C("canonical domains with an address", "CanonicalizeHostname yes\nCanonicalDomains invalid\n", IN),
)  # fmt: skip
KEYS = (
    C("a token in IdentityFile", "IdentityFile {keys}/%n.key\n", IN, bare=True),
    C("a token nobody knows in IdentityFile", "IdentityFile {keys}/id%q\n", OUT),
    C("a variable in IdentityFile", "IdentityFile ${{MUSTER_TEST_KEYS}}/id\n", IN, bare=True),
    C("a variable that is not set", "IdentityFile {keys}/${{MUSTER_TEST_NOWHERE}}\n", OUT),
    C("a strange key first", "IdentityFile {keys}/strange\n", IN),
    C("the second key first", "IdentityFile {keys}/second\n", IN),
    C("a key that others can read", "IdentityFile {keys}/open\n", OUT, bare=True),
    C("a key with a passphrase", "IdentityFile {keys}/locked\n", OUT, bare=True),
    C("no key at all", "IdentityFile none\n", OUT, bare=True),
    C("an agent's key before a file's", "IdentitiesOnly no\n", IN, agent=True),
    C("an agent's key that no file names", "IdentitiesOnly yes\nIdentityFile none\n", OUT, bare=True, agent=True),
    C("an agent's key by its public half", "IdentitiesOnly yes\nIdentityFile {keys}/held.pub\n", IN, bare=True,
      agent=True),
    C("an agent's key by a locked file", "IdentitiesOnly yes\nIdentityFile {keys}/held\n", IN, bare=True, agent=True),
    C("IdentityAgent none", "IdentityAgent none\n", OUT, bare=True, agent=True),
    C("IdentityAgent by path", "IdentityAgent {agent}\n", IN, bare=True),
    C("IdentityAgent by variable", "IdentityAgent $MUSTER_TEST_AGENT\n", IN, bare=True),
    C("IdentityAgent by a variable that is not set", "IdentityAgent $MUSTER_TEST_NOWHERE\n", OUT, bare=True,
      agent=True),
    C("IdentityAgent by name", "IdentityAgent SSH_AUTH_SOCK\n", IN, bare=True, agent=True),
    C("PubkeyAuthentication no", "PubkeyAuthentication no\n", OUT),
    C("PreferredAuthentications without keys", "PreferredAuthentications password,keyboard-interactive\n", OUT),
    C("PreferredAuthentications with keys", "PreferredAuthentications keyboard-interactive,publickey\n", IN),
    C("a signature algorithm that is not accepted", "PubkeyAcceptedAlgorithms rsa-sha2-512\n", OUT),
    C("a signature algorithm that is taken out", "PubkeyAcceptedAlgorithms -ssh-ed25519\n", OUT),
    C("one RSA signature algorithm", "PubkeyAcceptedAlgorithms rsa-sha2-256" + KEY + "rsa\n", IN),
    C("an RSA key that is too short", "RequiredRSASize 4096" + KEY + "rsa\n", OUT, bare=True),
    C("a certificate beside its key", "IdentityFile {keys}/certified\n", IN, bare=True),
    C("CertificateFile", "CertificateFile {keys}/apart.pub\nIdentityFile {keys}/apart\n", IN, bare=True),
    C("CertificateFile for the agent's key", "CertificateFile {keys}/held-apart.pub\n", IN, bare=True, agent=True),
    C("a certificate that has expired", "IdentityFile {keys}/late\n", OUT, bare=True),
    C("certificates not accepted", "PubkeyAcceptedAlgorithms ssh-ed25519" + KEY + "certified\n", OUT, bare=True),
    C("PKCS11Provider", "PKCS11Provider {x}/nowhere.so\n", IN),
    C("SecurityKeyProvider", "SecurityKeyProvider {x}/nowhere.so\n", IN),
)  # fmt: skip
TRUST = (
    C("a host nobody knows", "", OUT, known=""),
    C("a host nobody knows, let in", "StrictHostKeyChecking no\n", STRICTER, "StrictHostKeyChecking", known=""),
    C("a new host, let in", "StrictHostKeyChecking accept-new\n", STRICTER, "StrictHostKeyChecking", known=""),
    C("another key", "", OUT, known="[127.0.0.1]:{port} {strange}\n"),
    C("another key, let in all the same", "StrictHostKeyChecking no\n", STRICTER, "StrictHostKeyChecking",
      known="[127.0.0.1]:{port} {strange}\n"),
    C("a mark nobody knows", "", OUT, known="@trusted [127.0.0.1]:{port} {ed25519}\n"),
    C("a form feed is no end of a line", "", OUT, known="# \x0c[127.0.0.1]:{port} {ed25519}\n"),
    C("RSA put first, ed25519 known", "HostKeyAlgorithms ^rsa-sha2-512\n", OUT,
      known="[127.0.0.1]:{port} {ed25519}\n"),
    C("a name with a pattern", "", IN, known="[127.0.0.*]:{port} {ed25519}\n"),
    C("a name that is negated", "", OUT, known="*,!127.0.0.1,![127.0.0.1]:{port} {ed25519}\n"),
    C("a name that is negated with its port alone", "", IN, known="*,![127.0.0.1]:{port} {ed25519}\n"),
    C("a key known without the port", "", IN, known="127.0.0.1 {ed25519}\n"),
    C("a revoked line", "", OUT, known="{all}@revoked * {ed25519}\n@revoked * {rsa}\n"),
    C("an authority that signed the host's key", "", IN,
      known="@cert-authority * {authority}\n"),
    C("an authority's own key is no host's", "", OUT, known="@cert-authority * {ed25519}\n"),
    C("only the RSA key known", "", IN, known="[127.0.0.1]:{port} {rsa}\n"),
    C("only the RSA key known, a list of one's own", "HostKeyAlgorithms ssh-ed25519,rsa-sha2-512\n", OUT,
      known="[127.0.0.1]:{port} {rsa}\n"),
    C("only the RSA key known, ed25519 taken out", "HostKeyAlgorithms -ssh-ed25519*\n", IN,
      known="[127.0.0.1]:{port} {rsa}\n"),
    C("a host key type the server lacks", "HostKeyAlgorithms ecdsa-sha2-nistp256\n", OUT),
    C("a host key that is too short", "RequiredRSASize 4096\nHostKeyAlgorithms rsa-sha2-512\n", OUT),
    C("HostKeyAlias", "HostKeyAlias the-node\n", IN, known="the-node {ed25519}\n"),
    C("HostKeyAlias nobody knows", "HostKeyAlias the-node\n", OUT),
    C("no file of known hosts", "UserKnownHostsFile none\n", OUT),
    C("a token in UserKnownHostsFile", "UserKnownHostsFile {x}/%h.known\n", IN, known="",
      files=(("127.0.0.1.known", "[127.0.0.1]:{port} {ed25519}\n"),)),
    C("a blank in UserKnownHostsFile", 'UserKnownHostsFile "{x}/my hosts"\n', IN, known="",
      files=(("my hosts", "[127.0.0.1]:{port} {ed25519}\n"),)),
    C("GlobalKnownHostsFile", "GlobalKnownHostsFile {x}/all\n", IN, known="",
      files=(("all", "[127.0.0.1]:{port} {ed25519}\n"),)),
    C("a revoked line in GlobalKnownHostsFile", "GlobalKnownHostsFile {x}/all\n", OUT,
      files=(("all", "@revoked * {ed25519}\n@revoked * {rsa}\n"),)),
    C("one of two known keys revoked", "", IN, known="{all}@revoked * {ed25519}\n"),
    C("RevokedHostKeys, a list", "RevokedHostKeys {x}/bad\n", OUT, files=(("bad", "# bad\n{ed25519} mine\n"),)),
    C("RevokedHostKeys, a list of others", "RevokedHostKeys {x}/bad\n", IN, files=(("bad", "{strange}\n"),)),
    C("RevokedHostKeys, made by ssh-keygen", "RevokedHostKeys {keys}/revoked.krl\n", OUT),
    C("RevokedHostKeys, made by ssh-keygen, of others", "RevokedHostKeys {keys}/others.krl\n", IN),
    C("RevokedHostKeys that is not there", "RevokedHostKeys {x}/nowhere\n", OUT),
    C("CheckHostIP", "CheckHostIP yes\n", IN),
    C("VerifyHostKeyDNS", "VerifyHostKeyDNS yes\n", IN),
    C("KnownHostsCommand", "KnownHostsCommand /bin/echo [127.0.0.1]:{port} {ed25519}\n", IN, known=""),
    C("NoHostAuthenticationForLocalhost", "NoHostAuthenticationForLocalhost yes\n", STRICTER,
      "NoHostAuthenticationForLocalhost", known=""),
)  # fmt: skip
WAYS = (
    C("one cipher", "Ciphers aes256-ctr\n", IN),
    C("another cipher", "Ciphers chacha20-poly1305@openssh.com\n", IN),
    C("a cipher the server lacks", "Ciphers 3des-cbc\n", OUT),
    C("a cipher nobody knows", "Ciphers rot13\n", OUT),
    C("another MAC", "MACs umac-128-etm@openssh.com\n", IN),
    C("one MAC", "Ciphers aes128-ctr\nMACs hmac-sha2-512\n", IN),
    C("another key exchange", "KexAlgorithms sntrup761x25519-sha512@openssh.com\n", IN),
    C("one key exchange, by its new name", "KexAlgorithms curve25519-sha256\n", IN),
    C("ProxyJump", "Host node\n ProxyJump 127.0.0.1:{door}\n", IN),
    C("ProxyJump by two", "Host node\n ProxyJump 127.0.0.1:{door},{me}@127.0.0.1:{middle}\n", IN),
    C("ProxyJump by two goes before the second's ProxyCommand", "Host node\n ProxyJump 127.0.0.1:{door},second\n"
      "Host second\n HostName 127.0.0.1\n Port {middle}\n ProxyCommand false\n", IN),
    C("ProxyJump none goes first", "Host node\n ProxyJump none\nHost *\n ProxyJump 127.0.0.1:{dead}\n", IN),
    C("ProxyJump for all, itself too", "Host *\n ProxyJump 127.0.0.1:{door}\n", OUT),
    C("ProxyJump as a wrong user", "Host node\n ProxyJump nobody-here@127.0.0.1:{door}\n", OUT),
    C("ProxyJump as a URI", "Host node\n ProxyJump ssh://127.0.0.1:{door}\n", IN),
    C("ProxyJump that is no host", "Host node\n ProxyJump a,,b\n", OUT),
    C("ProxyCommand in a shell's words", "Host node\n"
      " ProxyCommand bash -c 'exec 3<>/dev/tcp/$0/$1; cat <&3 & cat >&3; kill $!' %h %p 2>/dev/null\n", IN),
    C("ProxyCommand none before ProxyJump", "ProxyCommand none\nProxyJump 127.0.0.1:{dead}\n", IN),
    C("ProxyCommand that fails", "ProxyCommand false\n", OUT),
    C("ProxyCommand with a token nobody knows", "ProxyCommand nc %q %p\n", OUT),
    C("AddressFamily inet6", "AddressFamily inet6\n", OUT),
    C("AddressFamily inet", "AddressFamily inet\n", IN),
    C("BindAddress", "BindAddress 127.0.0.3\n", IN),
    C("BindAddress of another machine", "BindAddress 192.0.2.1\n", OUT),
    C("BindInterface", "BindInterface lo\n", IN),
    C("RemoteCommand", "RemoteCommand uptime\n", IGNORED, "RemoteCommand"),
    C("forwards that must work", "ExitOnForwardFailure yes\nLocalForward 127.0.0.1:{door} 127.0.0.1:1\n", IGNORED,
      "LocalForward"),
    C("forwards that may fail", "LocalForward {door} 127.0.0.1:1\n", IN),
    C("what does not matter to us", "ForwardAgent yes\nGSSAPIAuthentication yes\nCompression yes\nSetEnv A=b\n"
      "ServerAliveInterval 3\nRequestTTY no\nControlMaster no\nTunnel no\n", IN),
)  # fmt: skip
ALL = (*MATCHING, *KEYS, *TRUST, *WAYS)
