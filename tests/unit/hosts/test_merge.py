"""Lines of several hosts as one stream: in order, complete, and with a limit on what waits in memory."""

import threading

from deploy.hosts.look.merge import LINE_WEIGHT, MOST_WAITING, Line, Merge
from lab.waiting import until


def put_all(merge, source, stamps, text="x"):
    for stamp in stamps:
        merge.put(Line(source, f"{stamp:09d}", text))
    merge.end(source)


def test_lines_are_sorted_by_time_and_none_is_lost():
    merge = Merge(["a", "b", "c"])
    shares = {"a": range(0, 30000, 2), "b": range(1, 9000, 4), "c": []}
    threads = [threading.Thread(target=put_all, args=(merge, *share)) for share in shares.items()]
    for thread in threads:
        thread.start()
    stamps = [line.stamp for block in merge.blocks() for line in block]
    assert stamps == sorted(stamps)
    assert len(stamps) == sum(map(len, shares.values()))


def test_lines_with_the_same_time_keep_the_order_of_their_host():
    merge = Merge(["a"])
    for number in range(5):
        merge.put(Line("a", "1", str(number)))
    merge.end("a")
    assert [line.text for block in merge.blocks() for line in block] == list("01234")


def test_a_writer_that_is_faster_than_the_reader_waits():
    merge = Merge(["a", "b"])
    count, text = 50, "x" * (MOST_WAITING // 10)
    writer = threading.Thread(target=put_all, args=(merge, "a", range(count), text))
    writer.start()
    lying = lambda: len(merge._feeds["a"].lines)  # noqa: E731
    until(lambda: lying() >= 10, "the writer to be held up", 10)
    writer.join(0.2)
    assert writer.is_alive()
    assert lying() < count / 2
    merge.end("b")
    assert sum(len(block) for block in merge.blocks()) == count
    writer.join(5)
    assert not writer.is_alive()


def test_a_silent_host_delays_the_others_only_for_the_patience():
    merge = Merge(["talks", "silent"], patience_s=0.05)
    merge.put(Line("talks", "1", "hello"))
    assert next(merge.blocks()) == [Line("talks", "1", "hello")]


def test_a_silent_host_does_not_slow_down_a_talkative_one():
    merge = Merge(["talks", "silent"], patience_s=3600)
    count, text, lines = 1000, "x" * (MOST_WAITING // 50), []
    threading.Thread(target=put_all, args=(merge, "talks", range(count), text), daemon=True).start()
    reader = threading.Thread(target=lambda: [lines.extend(block) for block in merge.blocks()], daemon=True)
    reader.start()
    until(lambda: len(lines) > count - 100, "all but what may wait", 20)
    merge.end("silent")
    reader.join(20)
    assert [int(line.stamp) for line in lines] == [*range(count)]


def test_without_patience_an_earlier_line_is_waited_for():
    merge = Merge(["a", "b"])
    merge.put(Line("a", "2", "second"))
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(line for block in merge.blocks() for line in block))
    reader.start()
    reader.join(0.2)
    assert lines == []
    put_all(merge, "b", [])
    until(lambda: lines, "the line", 10)
    merge.end("a")
    reader.join(5)
    assert [line.text for line in lines] == ["second"]


def test_empty_lines_count_toward_the_limit_too():
    merge = Merge(["a"])
    writer = threading.Thread(target=put_all, args=(merge, "a", range(MOST_WAITING // 100), ""))
    writer.start()
    until(lambda: len(merge._feeds["a"].lines) > MOST_WAITING // LINE_WEIGHT, "the writer to be held up", 10)
    assert len(merge._feeds["a"].lines) < MOST_WAITING // 200
    merge.close()
    writer.join(5)


def test_closing_releases_waiting_writers():
    merge = Merge(["a"])
    writer = threading.Thread(target=put_all, args=(merge, "a", range(50), "x" * (MOST_WAITING // 10)))
    writer.start()
    until(lambda: len(merge._feeds["a"].lines) >= 10, "the writer to be held up", 10)
    merge.close()
    writer.join(5)
    assert not writer.is_alive()
