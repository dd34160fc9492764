"""An error means a lost peer, and not a cause, only if it has torch's own words and the type that torch raises."""

import pytest

from trainer.node.ending.peer_errors import (
    LostPeerError,
    error_reports_lost_peer,
    line_reports_lost_peer,
    mentions_lost_peer,
)

GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:4242"
VICTIMS = [
    f"RuntimeError: {GLOO}",
    f"[rank3]: RuntimeError: {GLOO}",
    "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0",
    "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect",
    "_DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
    "RuntimeError: Application timeout caused pair closure",
    "RuntimeError: Connection reset by peer",
    "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cuda//0",
    "RuntimeError: [enforce fail]\nRank 1 failed to pass monitoredBarrier in 30000 ms",
]
CAUSES = [
    "RuntimeError: Distributed package doesn't have NCCL built in",
    "RuntimeError: Connection reset by peer while reading s3://data",
    f"requests.exceptions.ConnectionError: {GLOO}",
    f"ValueError: {GLOO}",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "RuntimeError: CUDA out of memory",
    "RuntimeError",
    "",
]


@pytest.mark.parametrize("error", VICTIMS)
def test_torchs_own_message_about_a_lost_peer_marks_a_victim(error):
    assert line_reports_lost_peer(error)


@pytest.mark.parametrize("error", CAUSES)
def test_every_other_error_is_a_cause(error):
    assert not line_reports_lost_peer(error)


def test_an_exception_is_judged_by_its_type_and_message_and_ours_counts_as_a_lost_peer():
    assert error_reports_lost_peer(RuntimeError(GLOO))
    assert error_reports_lost_peer(LostPeerError("rank 1 did not come"))
    assert not error_reports_lost_peer(ValueError(GLOO))
    assert not error_reports_lost_peer(RuntimeError("shape mismatch"))


def test_a_line_without_an_exception_type_may_speak_of_peers():
    assert mentions_lost_peer(f"what happened:\n  what():  {GLOO}")
    assert not mentions_lost_peer("nothing of it\n")
