"""Who has connected to a session's socket, which every user of the machine can do, and has proved nothing yet."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from typing import Generic, Protocol, TypeVar

MOST = 64


class Connection(Protocol):
    socket: socket.socket


One = TypeVar("One", bound=Connection)


class Strangers(Generic[One]):
    """Of too many, the user who has the most of them loses one: others' workers stay."""

    def __init__(self) -> None:
        self._users: dict[One, int] = {}  # In the order in which they came.

    def add(self, connection: One) -> One | None:
        """Returns the one that has to go, which is none of ours any more; usually None. OSError."""
        size = struct.calcsize("3i")
        credentials = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        self._users[connection] = struct.unpack("3i", credentials)[1]
        if len(self._users) <= MOST:
            return None
        greedy = Counter(self._users.values()).most_common(1)[0][0]
        oldest = next(one for one, user in self._users.items() if user == greedy)
        self.discard(oldest)
        return oldest

    def discard(self, connection: One) -> None:
        self._users.pop(connection, None)
