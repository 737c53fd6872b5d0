"""Data sets in the layouts in which people have them, written by the programs that they use: tarfile, gzip, pickle."""

import gzip
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from gyre.errors import CorruptDataError, Error, InvalidArgumentError, UnsupportedError
from PIL import Image as Pillow

from gyre.data import Loader, image, ints, length, raw, write_tfrecords

PIXELS = image(32, augment=False, resize=32, dtype="uint8", layout="HWC")


def picture(number: int) -> np.ndarray:
    return np.full((32, 32, 3), 5 * number, dtype=np.uint8)


def png(number: int) -> bytes:
    memory = io.BytesIO()
    Pillow.fromarray(picture(number)).save(memory, "PNG")
    return memory.getvalue()


def check(loader: Loader, count: int) -> None:
    """Sample i is picture i, and its label i % 3."""
    batch = next(iter(loader))
    assert loader.samples == count
    for number in range(count):
        assert torch.equal(batch["image"][number], torch.from_numpy(picture(number))), number
        assert batch["label"][number] == number % 3


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_shards_of_every_tar_format(tmp_path: Path, kind: int) -> None:
    folder = "a-folder-whose-name-is-long/" * (3 if kind == tarfile.USTAR_FORMAT else 8)
    for shard in range(2):
        with tarfile.open(tmp_path / f"shard-{shard}.tar", "w", format=kind) as archive:
            for number in range(shard * 5, shard * 5 + 5):
                for ending, contents in (("png", png(number)), ("cls", str(number % 3).encode())):
                    member = tarfile.TarInfo(f"{folder}{number:06}.{ending}")
                    member.size = len(contents)
                    archive.addfile(member, io.BytesIO(contents))
    fields = {"image": PIXELS, "label": ints()}
    check(Loader(tmp_path, fields, batch_size=10, shuffle=False), 10)
    blocks = Loader(tmp_path, fields, batch_size=5, shuffle="block", open_blocks=1, seed=1)
    kept = [set((batch["image"][:, 0, 0, 0] // 25).tolist()) for batch in blocks]
    assert sorted(map(len, kept)) == [1, 1]


def shard(path: Path, numbers: range) -> None:
    with tarfile.open(path, "w") as archive:
        for number in numbers:
            member = tarfile.TarInfo(f"d/{number}.cls")
            member.size = 1
            archive.addfile(member, io.BytesIO(b"%d" % number))


def test_a_shard_that_was_cut_is_named_and_shards_in_one_file_are_read(tmp_path: Path) -> None:
    shard(tmp_path / "a.tar", range(6))
    shard(tmp_path / "b.tar", range(6, 10))
    (tmp_path / "both.tar").write_bytes((tmp_path / "a.tar").read_bytes() + (tmp_path / "b.tar").read_bytes())
    fields = {"label": ints(key="cls"), "key": raw("uint8", 5, pad=0, key="__key__"), "length": length("__key__")}
    batch = next(iter(Loader(tmp_path / "both.tar", fields, batch_size=10, shuffle=False)))
    assert batch["label"].tolist() == list(range(10))
    keys = [bytes(key[:size].tolist()) for key, size in zip(batch["key"], batch["length"], strict=True)]
    assert keys == [b"d/%d" % number for number in range(10)]
    (tmp_path / "cut.tar").write_bytes((tmp_path / "a.tar").read_bytes()[: 4 * 1024])  # At a sample's end.
    with pytest.raises(CorruptDataError, match=r"cut\.tar ends at byte 4096 behind entry 4 .* cut off"):
        Loader(tmp_path / "cut.tar", fields, batch_size=1)


def test_labels_may_stand_in_json(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "shard.tar", "w") as archive:
        for number in range(4):
            for ending, contents in (("png", png(number)), ("json", b'{"label": %d, "by": "me"}' % (number % 3))):
                member = tarfile.TarInfo(f"{number}.{ending}")
                member.size = len(contents)
                archive.addfile(member, io.BytesIO(contents))
    fields = {"image": PIXELS, "label": ints(key="json/label")}
    check(Loader(tmp_path / "shard.tar", fields, batch_size=4, shuffle=False), 4)


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for number in range(9):
        place = tmp_path / "train" / "abc"[number % 3] / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(png(number))
    loader = Loader(tmp_path / "train", {"image": PIXELS, "label": ints()}, batch_size=9, shuffle=False)
    assert loader.classes == ["a", "b", "c"]
    batch = next(iter(loader))
    assert batch["label"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert (batch["image"][:, 0, 0, 0] // 5).tolist() == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_images_of_a_kind_that_is_not_read_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "train" / "a").mkdir(parents=True)
    (tmp_path / "train" / "a" / "1.png").write_bytes(png(1))
    (tmp_path / "train" / "a" / "notes.txt").write_text("passed over")
    Pillow.fromarray(picture(2)).save(tmp_path / "train" / "a" / "2.WebP", "WEBP")
    with pytest.raises(UnsupportedError, match=r"a/2\.WebP is a WebP image, which is not read; convert"):
        Loader(tmp_path / "train", {"image": PIXELS}, batch_size=1)


@pytest.mark.parametrize("packed", [False, True])
def test_mnist(tmp_path: Path, packed: bool) -> None:
    opener = gzip.open if packed else open
    ending = ".gz" if packed else ""
    digits = np.arange(6 * 28 * 28, dtype=np.uint8).reshape(6, 28, 28)
    with opener(tmp_path / f"train-images-idx3-ubyte{ending}", "wb") as file:
        file.write(b"\0\0\x08\x03" + np.array([6, 28, 28], ">u4").tobytes() + digits.tobytes())
    with opener(tmp_path / f"train-labels-idx1-ubyte{ending}", "wb") as file:
        file.write(b"\0\0\x08\x01" + np.array([6], ">u4").tobytes() + bytes([3, 1, 4, 1, 5, 9]))
    fields = {
        "image": raw("uint8", (28, 28), dtype="float32"),
        "rgb": image(28, augment=False, resize=28, dtype="uint8", key="image"),
        "label": ints(),
    }
    batch = next(iter(Loader(tmp_path / "train-*", fields, batch_size=6, shuffle=False)))
    assert batch["label"].tolist() == [3, 1, 4, 1, 5, 9]
    assert torch.equal(batch["image"], torch.from_numpy(digits).float())
    assert torch.equal(batch["rgb"][:, 2], torch.from_numpy(digits))


@pytest.mark.parametrize("layout", ["binary", "python"])
def test_cifar10(tmp_path: Path, layout: str) -> None:
    for batch in range(2):
        numbers = range(batch * 4, batch * 4 + 4)
        planes = [picture(number).transpose(2, 0, 1).tobytes() for number in numbers]
        if layout == "binary":
            contents = b"".join(bytes([n % 3]) + p for n, p in zip(numbers, planes, strict=True))
            (tmp_path / f"data_batch_{batch + 1}.bin").write_bytes(contents)
        else:
            data = np.frombuffer(b"".join(planes), np.uint8).reshape(4, 3072)
            labels = [n % 3 for n in numbers]
            (tmp_path / f"data_batch_{batch + 1}").write_bytes(pickle.dumps({b"data": data, b"labels": labels}, 2))
    check(Loader(tmp_path / "data_batch_*", {"image": PIXELS, "label": ints()}, batch_size=8, shuffle=False), 8)


def test_a_format_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    with pytest.raises(
        InvalidArgumentError, match="format 'zip' is none of 'auto', 'tfrecord', 'folder', 'images', 'tar', 'idx'"
    ):
        Loader(tmp_path, {"image": PIXELS}, batch_size=1, format="zip")


def test_an_empty_list_is_of_any_type(tmp_path: Path) -> None:
    """Python's has none, and write_tfrecords() must give it one."""
    path = str(tmp_path / "x.tfrecord")
    write_tfrecords(path, [{"tokens": [1, 2]}, {"tokens": []}])
    fields = {"tokens": ints(3, pad=0), "count": length("tokens")}
    (batch,) = Loader(path, fields, batch_size=2, shuffle=False)
    assert batch["tokens"].tolist() == [[1, 2, 0], [0, 0, 0]]
    assert batch["count"].tolist() == [2, 0]


@pytest.mark.parametrize(("value", "offset"), [(2**63 - 1, 1), (-(2**63), -1)])
def test_an_offset_that_leads_beyond_int64_is_an_error(tmp_path: Path, value: int, offset: int) -> None:
    """It wrapped around."""
    path = str(tmp_path / "x.tfrecord")
    write_tfrecords(path, [{"label": value}])
    with pytest.raises(Error, match=f"holds {value} there, and {offset} more does not fit"):
        next(iter(Loader(path, {"label": ints(offset=offset)}, batch_size=1, shuffle=False)))


def test_a_state_of_the_same_samples_in_other_files_is_refused(tmp_path: Path) -> None:
    """The order of blocks is another one: some samples came twice, others never."""

    def loader(sizes: list[int]) -> Loader:
        folder = tmp_path / "-".join(map(str, sizes))
        folder.mkdir()
        first = 0
        for number, size in enumerate(sizes):
            write_tfrecords(str(folder / f"{number}"), [{"id": first + i} for i in range(size)])
            first += size
        return Loader(f"{folder}/*", {"id": ints()}, batch_size=4, shuffle="block", open_blocks=2)

    state = loader([8, 8, 8]).state_dict()
    with pytest.raises(InvalidArgumentError, match="files"):
        loader([8, 12, 4]).load_state_dict(state)
