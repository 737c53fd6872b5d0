"""Measures a link: `link_probe.py serve ADDRESS PORT` here, `link_probe.py measure ADDRESS PORT BYTES` there.

The measuring side prints one JSON object: {"round_trip_us": …, "bytes_per_second": …}. Both sides give up after
LONGEST_WAIT_S. Standard library only, so that any host with Python can run it.
"""

from __future__ import annotations

import json
import socket
import sys
import time

LONGEST_WAIT_S = 30.0
ROUND_TRIPS = 20
PIECE_BYTES = 1 << 16


def receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise SystemExit("the other side closed the connection")
        received += piece
    return received


def serve(address: str, port: int) -> None:
    """Answers one measurement: echoes single bytes, then takes what streams in and says when it has all."""
    with socket.create_server((address, port)) as server:
        server.settimeout(LONGEST_WAIT_S)
        print("ready", flush=True)
        connection, _ = server.accept()
    with connection:
        connection.settimeout(LONGEST_WAIT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUND_TRIPS):
            connection.sendall(receive(connection, 1))
        total = int.from_bytes(receive(connection, 8), "little")
        space = bytearray(PIECE_BYTES)
        received = 0
        while received < total:
            count = connection.recv_into(space)
            if count == 0:
                raise SystemExit("the other side closed the connection")
            received += count
        connection.sendall(b"!")


def measure(address: str, port: int, count: int) -> dict[str, float]:
    with socket.create_connection((address, port), timeout=LONGEST_WAIT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times = []
        for _ in range(ROUND_TRIPS):
            start = time.perf_counter()
            connection.sendall(b"?")
            receive(connection, 1)
            times.append(time.perf_counter() - start)
        piece = bytes(PIECE_BYTES)
        # From before the first byte leaves until the last one is known to be there: late threads only make it slower.
        start = time.perf_counter()
        connection.sendall(count.to_bytes(8, "little"))
        for begin in range(0, count, PIECE_BYTES):
            connection.sendall(piece[: count - begin])
        receive(connection, 1)
        seconds = time.perf_counter() - start
    return {"round_trip_us": min(times) * 1e6, "bytes_per_second": count / seconds}


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["measure"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
    else:
        raise SystemExit(__doc__)
