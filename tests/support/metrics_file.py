"""The metrics file, read as docs/formats/metrics.md says, without Gyre."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Sample:
    name: str
    rank: int
    step: int
    time_us: int
    value: float


@dataclass
class Metrics:
    samples: list[Sample] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def values(self, name: str, rank: int) -> list[tuple[int, float]]:
        return [(each.step, each.value) for each in self.samples if (each.name, each.rank) == (name, rank)]

    def ranks_of(self, name: str) -> set[int]:
        return {each.rank for each in self.samples if each.name == name}


class _Body:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def text(self) -> str:
        return self.take(self.varint()).decode()

    def difference(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)


def _signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def read_metrics(path: Path) -> Metrics:
    """Of a file that is whole; the checksums are not looked at."""
    data = path.read_bytes()
    assert data[:8] == b"gyremet1"
    found = Metrics()
    names: list[str] = []
    at = 8
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        body = _Body(data[at + 8 : at + 8 + size])
        at += 8 + size
        assert at <= len(data), "the last block is cut off"
        kind = body.varint()
        if kind == 2:
            key = body.text()
            found.notes[key] = body.text()
        elif kind == 1:
            names += [body.text() for _ in range(body.varint())]
            step = time_us = 0
            while body.at < size:
                name, rank = names[body.varint()], body.varint()
                step = _signed(step + body.difference())
                time_us = _signed(time_us + body.difference())
                (value,) = struct.unpack("<d", body.take(8))
                found.samples.append(Sample(name, rank, step, time_us, value))
    return found
