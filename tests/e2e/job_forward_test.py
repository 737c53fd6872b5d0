"""`gyre job forward`: connections to a port on the node of a job that runs, through the service."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from job_server import JobServer
from running_job import wait_until

# Sends back what it gets, and ends when the other side has; its port is in the file.
ECHO = """
import os, socket, sys, threading
listener = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(listener.getsockname()[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
def serve(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
LONGEST_SECONDS = 60


@pytest.fixture
def port(server: JobServer) -> int:
    """Where the job `echo` listens."""
    server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={server.share}")
    server.ok("job", "submit", "-n", "echo", "--", "/usr/bin/python3", "-c", ECHO, str(server.share / "port"))
    wait_until("the job listens", (server.share / "port").exists)
    return int((server.share / "port").read_text())


@contextmanager
def forwarded(server: JobServer, ports: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    verb = server.start_verb("job", "forward", "echo", ports)
    assert verb.stdout is not None
    line = verb.stdout.readline().decode()
    found = re.match(r"127\.0\.0\.1:(\d+) leads to port \d+ on the node of rank 0 of job 'echo'", line)
    assert found, (line, verb.stderr and verb.stderr.read())
    try:
        yield int(found.group(1)), verb
    finally:
        verb.kill()
        verb.wait()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=LONGEST_SECONDS)


def expect_reset(connection: socket.socket) -> None:
    """Not an orderly end: whoever reads to the end must not take a part for the whole."""
    with pytest.raises(ConnectionResetError):
        all_of(connection)


def all_of(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_many_connections_carry_every_byte_both_ways_while_one_stands_still(server: JobServer, port: int) -> None:
    with forwarded(server, f"0:{port}") as (local, verb):
        stalled = connect(local)
        stalled.setblocking(False)
        sent = 0
        try:
            while sent < 50_000_000:  # It reads nothing, so that it has to wait long before.
                sent += stalled.send(bytes(65536))
        except BlockingIOError:
            pass
        assert sent < 50_000_000

        def echo(size: int) -> None:
            data = os.urandom(size)
            with connect(local) as connection:
                got: list[bytes] = []
                reader = threading.Thread(target=lambda: got.append(all_of(connection)))
                reader.start()
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                reader.join(LONGEST_SECONDS)
                results.append(got == [data])

        results: list[bool] = []
        threads = [threading.Thread(target=echo, args=(size,)) for size in (0, 1, 70_000, 3_000_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONGEST_SECONDS)
        assert results == [True] * 4
        stalled.close()
        verb.send_signal(signal.SIGINT)
        assert verb.wait(LONGEST_SECONDS) == 0
    audit = (server.folder / "audit.log").read_text()
    assert "/jobs/echo/forward" in audit


def test_the_reasons_are_told_and_it_ends_with_the_job(server: JobServer, port: int) -> None:
    with forwarded(server, "0:1") as (local, verb), connect(local) as connection:
        expect_reset(connection)
        assert verb.stderr is not None
        assert verb.stderr.readline() == b"gyre job forward: nothing listens at port 1 of the node\n"
    with forwarded(server, f"0:{port}") as (local, verb), connect(local) as connection:
        connection.sendall(b"hello")
        assert connection.recv(5) == b"hello"
        server.ok("job", "stop", "echo")
        with suppress(ConnectionResetError):  # The program ends its connection itself, or its node does.
            assert all_of(connection) == b""
        assert verb.wait(LONGEST_SECONDS) == 0
        assert verb.stderr is not None
        assert b"gyre job forward: job 'echo' has ended\n" in verb.stderr.read()
    refused = server.verb("job", "forward", "echo", str(port))
    assert refused.returncode == 1
    assert "job 'echo' does not run: it has failed" in refused.stderr
    zero = server.verb("job", "forward", "echo", "0")
    assert zero.returncode == 2
    assert "PORT 0 needs a REMOTE" in zero.stderr
    unknown = server.verb("job", "forward", "echo", "0x50")
    assert unknown.returncode == 2
    assert "PORT[:REMOTE]" in unknown.stderr


def test_a_restarted_server_ends_connections_with_a_message_and_carries_new_ones(server: JobServer, port: int) -> None:
    with forwarded(server, f"0:{port}") as (local, verb):
        with connect(local) as connection:
            connection.sendall(b"hello")
            assert connection.recv(5) == b"hello"
            server.restart(signal.SIGKILL)
            expect_reset(connection)
        assert verb.stderr is not None
        assert verb.stderr.readline() == b"gyre job forward: the service has closed the connection; try again\n"

        def answers() -> bool:  # Once the node has found the server again.
            try:
                with connect(local) as connection:
                    connection.sendall(b"again")
                    return connection.recv(5) == b"again"
            except ConnectionError:
                return False

        wait_until("a new connection", answers)
