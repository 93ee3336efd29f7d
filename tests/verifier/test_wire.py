"""What is a message, and what sealed memory withstands."""

import mmap
import os
import socket
from pathlib import Path

import pytest

from verifier import wire


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    with left, right:
        yield left, right


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", '{"a": -Infinity}', "1e999", '{"a": 1, "a": 2}', "", "{", "[" * 100_000]
)
def test_what_is_not_strict_json_is_refused(text):
    with pytest.raises(wire.WireError):
        wire.loads(text.encode())


def test_nan_cannot_be_sent():
    with pytest.raises(ValueError, match="JSON"):
        wire.dumps({"a": float("nan")})


def test_a_message_arrives_with_its_descriptors(pair):
    left, right = pair
    fd = wire.create_memory("test", 8)
    wire.send(left, {"size": 8}, [fd])
    os.close(fd)
    value, fds = wire.receive(right)
    assert value == {"size": 8}
    assert os.fstat(fds[0]).st_size == 8
    os.close(fds[0])


def test_two_messages_in_a_row_are_two(pair):
    left, right = pair
    wire.send(left, 1)
    wire.send(left, [2])
    assert [wire.receive(right)[0], wire.receive(right)[0]] == [1, [2]]


def test_a_message_that_says_it_is_too_large_is_refused_unread(pair):
    left, right = pair
    left.sendall((1 << 31).to_bytes(4, "little"))
    with pytest.raises(wire.WireError, match="at most"):
        wire.receive(right)


def test_a_flood_of_descriptors_is_refused_and_closed(pair):
    left, right = pair
    fd = wire.create_memory("test")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for byte in (b"\x08", b"\x00"):
        socket.send_fds(left, [byte], [fd] * wire.MAX_FDS)
    with pytest.raises(wire.WireError, match="descriptors"):
        wire.receive(right)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    os.close(fd)


def test_the_end_of_the_other_side_is_told_apart(pair):
    left, right = pair
    left.sendall(b"\x08\x00")
    left.close()
    with pytest.raises(wire.Closed):
        wire.receive(right)


def test_sealed_memory_cannot_be_written_mapped_for_writing_or_resized():
    fd = wire.create_memory("test", 8)
    os.pwrite(fd, b"12345678", 0)
    wire.seal_read_only(fd)
    assert wire.is_read_only(fd)
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(fd, 8)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 4)
    assert os.pread(fd, 8, 0) == b"12345678"
    os.close(fd)


def test_memory_of_fixed_size_can_be_filled_but_not_resized():
    fd = wire.create_memory("test", 8)
    wire.seal_size(fd)
    os.pwrite(fd, b"x", 0)
    assert not wire.is_read_only(fd)
    for size in (4, 16):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    os.close(fd)
