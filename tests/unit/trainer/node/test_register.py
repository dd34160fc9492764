"""The register reads nothing of whoever lacks the run's key, and runs no code of whoever has it."""

import os
import pickle
import socket

import pytest

from trainer.node import register


class Evil:
    """Runs a command where it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch /tmp/never",)


def test_a_message_needs_the_proof_of_the_key():
    proof = register._Proof("key")
    message = proof.encrypt_at_time(b"vote", 7)
    assert (proof.extract_timestamp(message), proof.decrypt(message)) == (7, b"vote")
    flipped = [bytes([*message[:place], message[place] ^ 1, *message[place + 1 :]]) for place in range(len(message))]
    for other in (register._Proof("other").encrypt_at_time(b"vote", 7), b"", message[:-1], *flipped):
        with pytest.raises(ValueError, match="no proof"):
            proof.extract_timestamp(other)
        with pytest.raises(ValueError, match="no proof"):
            proof.decrypt(other)


def test_a_pickle_holds_plain_values_alone():
    plain = {"type": "vote", "term": 3, "entries": [(b"\x00\xff", 1, 2.5, None, True, "é")]}
    assert register._loads(pickle.dumps(plain, 2)) == plain
    for value in (Evil(), os.system, Exception("x")):
        with pytest.raises(pickle.UnpicklingError):
            register._loads(pickle.dumps(value, 2))


def test_the_library_leaves_the_socket_module_as_it_is():
    assert socket.inet_ntop(socket.AF_INET, b"\x7f\x00\x00\x01") == "127.0.0.1"
