"""Writes a random data set of each format whose samples are numbered, and can damage one of them."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image as Pillow

from gyre.data import Field, image, ints, raw, write_tfrecords

Numbers = Callable[[Any], list[int]]
PIXELS = image(4, augment=False, resize=4, dtype="uint8", layout="HWC")


@dataclass
class WrittenSet:
    """`blocks`: the samples that are best read together, in the order of their numbers."""

    files: Any
    fields: dict[str, Field]
    blocks: list[list[int]]
    numbers: Numbers  # Of the samples of a batch.
    options: dict[str, Any] = field(default_factory=dict)
    damage: Callable[[], tuple[int, str]] | None = (
        None  # Damages one sample: its number, and the file that errors name.
    )

    @property
    def count(self) -> int:
        return sum(map(len, self.blocks))


def _shards(choose: random.Random, most: int = 9) -> list[list[int]]:
    sizes = [choose.choice([1, 2, choose.randint(1, most), most]) for _ in range(choose.randint(1, 6))]
    ends = np.cumsum(sizes).tolist()
    return [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]


def _colour(number: int) -> np.ndarray[Any, Any]:
    return np.full((4, 4, 3), number, np.uint8)


def _png(number: int) -> bytes:
    memory = io.BytesIO()
    Pillow.fromarray(_colour(number)).save(memory, "PNG")
    return memory.getvalue()


def _by_index(batch: Any) -> list[int]:
    return list(map(int, batch["index"]))


def _by_colour(batch: Any) -> list[int]:
    return [int(pixels.reshape(-1)[0]) for pixels in batch["image"]]


def _flip(path: Path, offset: int) -> None:
    contents = bytearray(path.read_bytes())
    contents[offset] ^= 0x40
    path.write_bytes(contents)


def tfrecord(folder: Path, choose: random.Random, compressions: tuple[str | None, ...] = (None,)) -> WrittenSet:
    blocks = _shards(choose)
    names = []
    for shard, block in enumerate(blocks):
        names.append(folder / f"part-{shard:03}.tfrecord")
        examples = [{"index": number, "x": bytes([number]) * 50} for number in block]
        write_tfrecords(names[-1], examples, compression=choose.choice(compressions))

    def damage() -> tuple[int, str]:
        shard = choose.randrange(len(blocks))
        at = choose.randrange(len(blocks[shard]))
        number = blocks[shard][at]
        records = names[shard].read_bytes()
        _flip(names[shard], records.index(bytes([number]) * 50) + 20)
        return number, names[shard].name

    damaged = damage if compressions == (None,) else None
    return WrittenSet(folder, {"index": ints(), "x": raw("uint8", 50)}, blocks, _by_index, damage=damaged)


def compressed_tfrecord(folder: Path, choose: random.Random) -> WrittenSet:
    return tfrecord(folder, choose, ("gzip", "zlib", None))


def uncounted_tfrecord(folder: Path, choose: random.Random) -> WrittenSet:
    """Files of as many records each, which are not counted beforehand."""
    size = choose.randint(1, 5)
    blocks = [list(range(shard * size, (shard + 1) * size)) for shard in range(choose.randint(1, 6))]
    for shard, block in enumerate(blocks):
        examples = [{"index": number} for number in block]
        write_tfrecords(folder / f"part-{shard:03}", examples, compression=choose.choice((None, "gzip")))
    return WrittenSet(folder, {"index": ints()}, blocks, _by_index, {"records_per_file": size})


def tar(folder: Path, choose: random.Random) -> WrittenSet:
    blocks = _shards(choose)
    for shard, block in enumerate(blocks):
        with tarfile.open(folder / f"shard-{shard:03}.tar", "w") as archive:
            for number in block:
                for ending, contents in (("png", _png(number)), ("cls", str(number).encode())):
                    member = tarfile.TarInfo(f"{number:05}.{ending}")
                    member.size = len(contents)
                    archive.addfile(member, io.BytesIO(contents))

    def damage() -> tuple[int, str]:
        shard = choose.randrange(len(blocks))
        number = choose.choice(blocks[shard])
        path = folder / f"shard-{shard:03}.tar"
        with tarfile.open(path) as archive:
            offset = archive.getmember(f"{number:05}.png").offset_data
        _flip(path, offset + 18)  # Of the header with the image's size, which has a checksum.
        return number, path.name

    fields = {"image": PIXELS, "index": ints(key="cls")}
    return WrittenSet(folder, fields, blocks, _by_index, damage=damage)


def folder_of_images(folder: Path, choose: random.Random) -> WrittenSet:
    number = 0
    for name in "abc"[: choose.randint(1, 3)]:
        (folder / name).mkdir()
        for _ in range(choose.randint(1, 12)):
            (folder / name / f"{number:05}.png").write_bytes(_png(number))
            number += 1

    def damage() -> tuple[int, str]:
        chosen = choose.randrange(number)
        (path,) = folder.glob(f"*/{chosen:05}.png")
        path.write_bytes(path.read_bytes()[:30])
        return chosen, path.name

    blocks = [[i] for i in range(number)]
    return WrittenSet(folder, {"image": PIXELS}, blocks, _by_colour, damage=damage)


def parquet(folder: Path, choose: random.Random) -> WrittenSet:
    blocks: list[list[int]] = []
    damages: list[tuple[Path, int]] = []
    for shard in range(choose.randint(1, 4)):
        first = blocks[-1][-1] + 1 if blocks else 0
        rows = list(range(first, first + choose.randint(1, 15)))
        group = choose.randint(1, 8)
        path = folder / f"part-{shard:03}.parquet"
        pq.write_table(pa.table({"index": rows}), path, row_group_size=group)
        blocks += [rows[begin : begin + group] for begin in range(0, len(rows), group)]
        damages += [(path, number) for number in rows]
    return WrittenSet(folder, {"index": ints()}, blocks, _by_index)


def idx(folder: Path, choose: random.Random) -> WrittenSet:
    count = choose.randint(1, 60)
    pixels = np.stack([_colour(number)[:, :, 0] for number in range(count)])
    opener, ending = choose.choice(((open, ""), (gzip.open, ".gz")))
    with opener(folder / f"t-images-idx3-ubyte{ending}", "wb") as file:
        file.write(b"\0\0\x08\x03" + np.array([count, 4, 4], ">u4").tobytes() + pixels.tobytes())
    with opener(folder / f"t-labels-idx1-ubyte{ending}", "wb") as file:
        file.write(b"\0\0\x08\x01" + np.array([count], ">u4").tobytes() + bytes(range(count)))
    fields = {"image": raw("uint8", (4, 4)), "index": ints(key="label")}
    return WrittenSet(folder / "t-*", fields, [[number] for number in range(count)], _by_index)


def cifar10(folder: Path, choose: random.Random) -> WrittenSet:
    blocks = _shards(choose)
    for shard, block in enumerate(blocks):
        rows = [bytes([number % 10]) + bytes([number]) * 3072 for number in block]
        (folder / f"data_batch_{shard + 1}.bin").write_bytes(b"".join(rows))
    singles = [[number] for block in blocks for number in block]
    return WrittenSet(folder / "data_batch_*", {"image": raw("uint8", (3, 32, 32))}, singles, _by_colour)


SETS = {
    "tfrecord": tfrecord,
    "tfrecord, compressed": compressed_tfrecord,
    "tfrecord, not counted": uncounted_tfrecord,
    "tar": tar,
    "folder": folder_of_images,
    "parquet": parquet,
    "idx": idx,
    "cifar10": cifar10,
}
