"""The proof that a node knows the key of its run, for peers.py and link.py. The key itself is never sent.

Each end of a connection draws a random word. A proof is the HMAC-SHA256, with the key, over a role, both words and a
text. So nobody can replay a proof, or send it back to its sender. Standard library only.
"""

from __future__ import annotations

import hmac
import json
import secrets

# The lengths of a word and of a proof, in letters.
WORD, LENGTH = 32, 64


def random_word() -> str:
    """A random word."""
    return secrets.token_hex(WORD // 2)


def make_proof(key: str, role: str, listeners: object, openers: object, text: str = "") -> str:
    """The proof of the end with this role. `listeners`, `openers`: the words of the listening and the opening end."""
    return hmac.digest(key.encode(), json.dumps([role, listeners, openers, text]).encode(), "sha256").hex()


def is_valid(proof: object, key: str, role: str, listeners: object, openers: object, text: str = "") -> bool:
    """Whether the other end's proof, which may be any value, is the right one."""
    right = make_proof(key, role, listeners, openers, text)
    return isinstance(proof, str) and hmac.compare_digest(proof.encode(errors="replace"), right.encode())
