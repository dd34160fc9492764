"""Which rank each line of a console belongs to, and which lines of a flood are shown to a follower."""

from deploy.run.output import MOST_LINES, ConsoleLines, RankLogs


def shown(events):
    return [(event["rank"], event["line"], event["moving"]) for event in events if event["kind"] == "output"]


def test_lines_of_a_one_rank_node_belong_to_its_rank_and_others_are_marked_with_theirs():
    lines = ConsoleLines()
    lines.put("a", "loss 3", 5.0)
    lines.put("b", "[rank2]: loss 4", 5.0)
    lines.put("b", "torchrun says", 5.0)
    began = {0: "a", 1: "b", 2: "b"}
    assert shown(lines.take(began)) == [(0, "loss 3", False), (2, "loss 4", False), (None, "torchrun says", False)]


def test_a_rank_cannot_speak_for_another():
    lines = ConsoleLines()
    lines.put("b", "[rank1]: [rank0]: I am rank 0", 5.0)
    lines.put("c", "[rank0]: I am rank 0", 5.0)
    printed = shown(lines.take({0: "a", 1: "b", 2: "b", 3: "c"}))
    assert [rank for rank, _, _ in printed] == [1, 3]


def test_lines_wait_until_the_ranks_of_their_node_are_known():
    lines = ConsoleLines()
    lines.put("a", "first", 5.0)
    assert lines.take({}) == []
    assert shown(lines.take({0: "a"})) == [(0, "first", False)]
    assert lines.take({0: "a"}) == []


def test_a_flood_of_lines_is_cut_and_the_cut_lines_are_counted():
    lines = ConsoleLines()
    for number in range(1000):
        lines.put("a", str(number), 5.0)
    cut, *rest = lines.take({0: "a"})
    assert (cut["kind"], cut["lines"]) == ("output_left_out", 1000 - MOST_LINES)
    assert shown(rest)[-1] == (0, "999", False)


def test_a_line_that_overwrites_itself_is_marked_as_moving():
    lines = ConsoleLines()
    lines.put("a", "\r50 %", 5.0)
    assert shown(lines.take({0: "a"})) == [(0, "50 %", True)]


def test_logs_on_this_machine_are_read_from_their_current_end(tmp_path):
    log = tmp_path / "run/logs/rank-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("of an earlier start\n")
    logs = RankLogs(tmp_path / "run")
    assert logs.take({0: "master"}) == []
    with log.open("a") as file:
        file.write("one\ntwo\nhal")
    assert shown(logs.take({0: "master"})) == [(0, "one", False), (0, "two", False)]
    with log.open("a") as file:
        file.write("f\n")
    assert shown(logs.take({0: "master"})) == [(0, "half", False)]


def test_a_progress_bar_in_a_log_is_a_moving_line(tmp_path):
    log = tmp_path / "run/logs/rank-0.log"
    log.parent.mkdir(parents=True)
    logs = RankLogs(tmp_path / "run")
    log.write_text("\r10 %\r20 %")
    assert shown(logs.take({0: "master"})) == [(0, "20 %", True)]
    assert logs.take({0: "master"}) == []
    log.write_text("\r10 %\r20 %\r30 %\n")
    assert shown(logs.take({0: "master"})) == [(0, "30 %", False)]


def test_a_progress_bar_below_another_moves_and_leaves_no_line_behind(tmp_path):
    log = tmp_path / "run/logs/rank-0.log"
    log.parent.mkdir(parents=True)
    logs = RankLogs(tmp_path / "run")
    log.write_text("epoch 0\n\rvalid: 50 %\x1b[A\n\rvalid: 100")
    assert shown(logs.take({0: "master"})) == [(0, "epoch 0", False)]
    with log.open("a") as file:
        file.write(" %\x1b[A")
    assert shown(logs.take({0: "master"})) == [(0, "valid: 100 %", True)]
    with log.open("a") as file:
        file.write("\n\r    \r\x1b[A\repoch 1\n")
    assert shown(logs.take({0: "master"})) == [(0, "epoch 1", False)]


def test_a_line_that_is_not_utf_8_is_shown_once_and_blocks_no_later_line(tmp_path):
    """The next read position was once counted in re-encoded bytes, so it was negative or inside old lines."""
    log = tmp_path / "run/logs/rank-0.log"
    log.parent.mkdir(parents=True)
    logs = RankLogs(tmp_path / "run")
    for piece, lines in (
        (b"one\n\xe9\xe9\xe9\xe9", ["one"]),
        (b"!\ntwo\n" + b"\xfc" * 12, ["\ufffd\ufffd\ufffd\ufffd!", "two"]),
        (b"\n\xe2\x96", ["\ufffd" * 12]),
        (b"\x88\n", ["\u2588"]),
    ):
        with log.open("ab") as file:
            file.write(piece)
        assert [line for _, line, _ in shown(logs.take({0: "master"}))] == lines


def test_a_log_that_is_a_link_is_not_read(tmp_path):
    (tmp_path / "secret").write_text("key\n")
    (tmp_path / "run/logs").mkdir(parents=True)
    logs = RankLogs(tmp_path / "run")
    (tmp_path / "run/logs/rank-0.log").symlink_to(tmp_path / "secret")
    assert logs.take({0: "master"}) == []


def test_the_end_is_shown_of_a_log_that_grows_faster_than_it_is_read(tmp_path):
    log = tmp_path / "run/logs/rank-0.log"
    log.parent.mkdir(parents=True)
    logs = RankLogs(tmp_path / "run")
    log.write_text("".join(f"{number:099d}\n" for number in range(10_000)))
    cut, *rest = logs.take({0: "master"})
    assert cut["kind"] == "output_left_out"
    assert shown(rest)[-1][1].endswith("9999")
    assert logs.take({0: "master"}) == []
