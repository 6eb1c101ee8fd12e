"""A connection's outgoing bytes."""

from __future__ import annotations

import pytest

from fastlock._core.replies import Replies, Switchboard


def test_a_connection_is_listed_once_however_often_it_is_written_to() -> None:
    board = Switchboard()
    one, other = board.open("one"), board.open("other")
    other.put(b"x" * 8)
    one.put(b"a" * 8)
    other.put(b"y" * 8)
    assert [replies.owner for replies in board.take_touched()] == ["other", "one"]
    assert other.size == 16
    assert other.take() == b"x" * 8 + b"y" * 8
    assert (other.take(), other.size) == (b"", 0)
    other.put(b"z" * 8)
    assert board.take_touched() == [other]


def test_a_closed_connection_takes_nothing_and_its_place_is_used_again() -> None:
    board = Switchboard()
    gone = board.open()
    gone.put(b"x" * 8)
    gone.close()
    gone.close()
    gone.put(b"y" * 8)
    assert (gone.closed, gone.size, gone.take(), gone.overflowed) == (True, 0, b"", False)
    newcomer = board.open()
    assert board.take_touched() == []
    newcomer.put(b"z" * 8)
    assert board.take_touched() == [newcomer]
    assert len(board) == 1


def test_one_that_nobody_reads_from_stops_growing() -> None:
    board = Switchboard()
    replies = board.open(bytes_max=100)
    for _ in range(1000):
        replies.put(b"x" * 40)
    assert replies.overflowed
    assert replies.size == 120


def test_only_a_switchboard_opens_replies() -> None:
    with pytest.raises(TypeError):
        Replies()


def test_many_connections_come_and_go() -> None:
    board = Switchboard()
    opened = [board.open(number) for number in range(10_000)]
    for replies in opened[::2]:
        replies.close()
    for replies in opened:
        replies.put(b"x" * 8)
    assert [replies.owner for replies in board.take_touched()] == list(range(1, 10_000, 2))
