"""What crosses between the judge and its children: length-prefixed strict JSON, descriptors, sealed
memory.

Nothing is ever unpickled. JSON with NaN, infinities, duplicate keys or too much of it is refused. Tensors
travel as raw bytes in memfds that neither side can change any more once they are sealed.
"""

from __future__ import annotations

import array
import fcntl
import json
import math
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

MAX_MESSAGE = 64 << 20  # bytes
MAX_FDS = 16

_HEADER = struct.Struct("<I")
_READ_ONLY = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class WireError(Exception):
    """The other side sent something that is no message."""


class Closed(WireError):
    """The other side is gone."""


# ------------------------------------------------------------------------------------- JSON


def dumps(value: Any) -> bytes:
    """Raises ValueError for NaN, infinities and what JSON does not know."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def loads(data: bytes) -> Any:
    """Raises WireError for anything but strict JSON."""
    try:
        return json.loads(
            data.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_unique,
        )
    except (ValueError, RecursionError) as error:
        raise WireError(f"not strict JSON: {error}") from None


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} does not fit a float")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) != len(pairs):
        raise ValueError("a key appears twice")
    return plain


# --------------------------------------------------------------------------------- messages


def send(sock: socket.socket, value: Any, fds: Sequence[int] = ()) -> None:
    """One message; the descriptors travel with its first byte. Raises Closed, ValueError."""
    data = dumps(value)
    if len(data) > MAX_MESSAGE:
        raise ValueError(f"a message of {len(data)} bytes is too large (at most {MAX_MESSAGE})")
    try:
        socket.send_fds(sock, [_HEADER.pack(len(data))], list(fds))
        sock.sendall(data)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed(str(error)) from None


def receive(sock: socket.socket) -> tuple[Any, list[int]]:
    """Block for one message and its descriptors. Raises Closed at its end, WireError."""
    frames = Frames()
    while not frames.messages:
        if not frames.feed(sock):
            raise Closed("the other side closed the connection")
    return frames.messages.pop(0), frames.take_fds()


class Frames:
    """Messages put together from what a socket delivers; for a reader that must watch other things too."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self.messages: list[Any] = []
        self._limit = limit
        self._data = bytearray()
        self._fds: list[int] = []

    def feed(self, sock: socket.socket) -> bool:
        """Read once; False at the end. Raises WireError for what is no message, or too large."""
        wanted = self._wanted()
        try:
            space = socket.CMSG_SPACE(MAX_FDS * 4)
            data, ancillary, _flags, _address = sock.recvmsg(wanted, space, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            return False
        self._keep_fds(ancillary)
        if not data:
            return False
        self._data += data
        if len(self._data) >= _HEADER.size and len(self._data) == _HEADER.size + self._length():
            self.messages.append(loads(bytes(self._data[_HEADER.size :])))
            self._data.clear()
        return True

    def take_fds(self) -> list[int]:
        fds, self._fds = self._fds, []
        return fds

    def close(self) -> None:
        """Close the descriptors that nobody took."""
        for fd in self.take_fds():
            os.close(fd)

    def _wanted(self) -> int:
        if len(self._data) < _HEADER.size:
            return _HEADER.size - len(self._data)
        return min(self._length() + _HEADER.size - len(self._data), 1 << 20)

    def _length(self) -> int:
        length = int(_HEADER.unpack_from(self._data)[0])
        if not 0 < length <= self._limit:
            raise WireError(f"a message of {length} bytes (at most {self._limit})")
        return length

    def _keep_fds(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                self._fds += fds.tolist()
        if len(self._fds) > MAX_FDS:
            self.close()
            raise WireError(f"more than {MAX_FDS} descriptors")


# ------------------------------------------------------------------------------------ memfds


def create_memory(name: str, size: int = 0) -> int:
    """A memfd of that many zero bytes."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    return fd


def seal_read_only(fd: int) -> None:
    """Nobody can change the bytes or the size any more. Raises OSError while it is mapped for writing."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _READ_ONLY)


def seal_size(fd: int) -> None:
    """The bytes can be written; the size cannot change any more."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FIXED_SIZE)


def is_read_only(fd: int) -> bool:
    try:
        return int(fcntl.fcntl(fd, fcntl.F_GET_SEALS)) & _READ_ONLY == _READ_ONLY
    except OSError:
        return False
