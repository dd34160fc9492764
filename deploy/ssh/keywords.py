"""The keywords of ssh_config(5): which ones Muster honours, which do not matter to it, and what to do about the others.

Also the algorithms that paramiko has. docs/ssh.md says the same for users.
"""

from __future__ import annotations

from ..core.program import FAB

# The fastest first: with AES in the processor's own steps GCM moves a gigabyte twice as fast.
_CIPHERS = """
aes128-gcm@openssh.com aes256-gcm@openssh.com aes128-ctr aes192-ctr aes256-ctr aes128-cbc aes192-cbc aes256-cbc
3des-cbc
"""
_MACS = """
hmac-sha2-256 hmac-sha2-512 hmac-sha2-256-etm@openssh.com hmac-sha2-512-etm@openssh.com hmac-sha1 hmac-md5
hmac-sha1-96 hmac-md5-96
"""
_KEX = """
mlkem768x25519-sha256 curve25519-sha256@libssh.org ecdh-sha2-nistp256 ecdh-sha2-nistp384 ecdh-sha2-nistp521
diffie-hellman-group16-sha512 diffie-hellman-group-exchange-sha256 diffie-hellman-group14-sha256
"""
_HOST_KEYS = """
ssh-ed25519 ecdsa-sha2-nistp256 ecdsa-sha2-nistp384 ecdsa-sha2-nistp521 rsa-sha2-512 rsa-sha2-256
"""
OURS: dict[str, tuple[str, ...]] = {
    "ciphers": tuple(_CIPHERS.split()),
    "macs": tuple(_MACS.split()),
    "kexalgorithms": tuple(_KEX.split()),
    "hostkeyalgorithms": tuple(_HOST_KEYS.split()),
}
# One algorithm, two names: the second is paramiko's.
SAME = {"curve25519-sha256": "curve25519-sha256@libssh.org"}

_HONOURED = """
addressfamily bindaddress certificatefile checkhostip ciphers connecttimeout globalknownhostsfile hashknownhosts host
hostkeyalgorithms hostkeyalias hostname identitiesonly identityagent identityfile kexalgorithms macs port
preferredauthentications proxycommand proxyjump pubkeyacceptedalgorithms pubkeyacceptedkeytypes pubkeyauthentication
requiredrsasize revokedhostkeys user userknownhostsfile
"""
# Evaluated by `ssh -G` already; or about terminals, forwardings, passwords, shared connections, words on the screen: we
# have none of these. Ways to take host keys more freely are here too: we stay strict.
_NO_MATTER = """
addkeystoagent batchmode canonicaldomains canonicalizefallbacklocal canonicalizehostname canonicalizemaxdots
canonicalizepermittedcnames casignaturealgorithms challengeresponseauthentication channeltimeout clearallforwardings
compression connectionattempts controlmaster controlpath controlpersist dynamicforward enableescapecommandline
enablesshkeysign escapechar exitonforwardfailure fingerprinthash forkafterauthentication forwardagent forwardx11
forwardx11timeout forwardx11trusted gatewayports gssapiauthentication gssapiclientidentity gssapidelegatecredentials
gssapikexalgorithms gssapikeyexchange gssapirenewalforcesrekey gssapiserveridentity gssapitrustdns
hostbasedacceptedalgorithms hostbasedauthentication hostbasedkeytypes ignoreunknown ipqos kbdinteractiveauthentication
kbdinteractivedevices localcommand localforward loglevel logverbose nohostauthenticationforlocalhost
numberofpasswordprompts obscurekeystroketiming passwordauthentication permitlocalcommand permitremoteopen
proxyusefdpass rekeylimit remoteforward requesttty sendenv serveralivecountmax serveraliveinterval setenv stdinnull
streamlocalbindmask streamlocalbindunlink stricthostkeychecking syslogfacility tag tcpkeepalive tunnel tunneldevice
updatehostkeys verifyhostkeydns versionaddendum visualhostkey warnweakcrypto xauthlocation
"""
HONOURED, NO_MATTER = frozenset(_HONOURED.split()), frozenset(_NO_MATTER.split())
# What to do about a setting that is refused, where there is more to say than to take it out.
INSTEAD = {
    "bindinterface": "name the interface's address: BindAddress",
    "exitonforwardfailure": "Muster opens no forwardings: `ClearAllForwardings yes` for this host",
    "knownhostscommand": f"put the keys into a file: UserKnownHostsFile, or `{FAB} trust`",
    "pkcs11provider": "put its keys into your agent (`ssh-add -s PROVIDER`); `PKCS11Provider none` for this host",
    "preferredauthentications": "Muster logs in with keys: add publickey for this host",
    "proxyusefdpass": "let the ProxyCommand move the data itself (`nc %h %p`)",
    "pubkeyauthentication": "Muster logs in with keys alone: `PubkeyAuthentication yes` for this host",
    "remotecommand": "Muster runs commands of its own: `RemoteCommand none` for this host",
    "revokedhostkeys": "`ls -l` it; while it cannot be read OpenSSH takes no host key either",
    "securitykeyprovider": "put the token's keys into your agent (`ssh-add -K`), and leave the provider as it is",
    "sessiontype": "Muster runs commands: `SessionType default` for this host",
}
