"""Parquet files as people have them, written by pyarrow when the test runs: what a loader makes of them, what it reads
of them, and what it says where pyarrow is missing. Golden files and damage are in gyre/data/parquet_set_test.cc."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from gyre.errors import CorruptDataError, InvalidArgumentError, UnsupportedError
from PIL import Image as Pillow

from gyre.data import Loader, floats, image, ints, raw

ROWS = 60
PACKAGE = Path(__file__).parent.parent.parent / "python"


def png(number: int) -> bytes:
    memory = io.BytesIO()
    Pillow.fromarray(np.full((32, 32, 3), 4 * number, dtype=np.uint8)).save(memory, "PNG")
    return memory.getvalue()


def table(first: int, count: int) -> pa.Table:
    rows = range(first, first + count)
    return pa.table(
        {
            # As Hugging Face's data sets keep images.
            "image": pa.array([{"bytes": png(i), "path": f"{i}.png"} for i in rows]),
            "label": pa.array([i % 7 for i in rows], pa.int32()),
            "row": pa.array(list(rows), pa.int64()),
            "volume": pa.array([[i] * 8 for i in rows], pa.list_(pa.int16(), 8)),
            "position": pa.array([[i + 0.5, -i] for i in rows], pa.list_(pa.float64())),
            "text": pa.array([f"row {i:02}" for i in rows]),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of 20 rows, in row groups of 8, 8 and 4."""
    folder = tmp_path_factory.mktemp("parquet")
    for number, compression in enumerate(("snappy", "zstd", "gzip")):
        path = folder / f"part-{number}.parquet"
        pq.write_table(table(20 * number, 20), path, compression=compression, row_group_size=8)
    return folder


def rows(loader: Loader) -> list[int]:
    return [row for batch in loader for row in batch["row"][: batch.counted].tolist()]


@pytest.mark.parametrize("format", ["auto", "parquet"])
def test_columns_become_tensors(folder: Path, format: str) -> None:
    fields = {
        "image": image(32, augment=False, resize=32, dtype="uint8", layout="HWC"),
        "label": ints(offset=1),
        "volume": raw("int16", (2, 2, 2), dtype="float32", transform="log1p"),
        "xy": floats(2, key="position"),
        "text": raw("uint8", 6),
    }
    (batch, *_) = Loader(folder, fields, batch_size=10, shuffle=False, format=format)
    for i in range(10):
        assert torch.equal(batch["image"][i], torch.full((32, 32, 3), 4 * i, dtype=torch.uint8))
        assert torch.allclose(batch["volume"][i], torch.log1p(torch.full((2, 2, 2), float(i))))
        assert batch["xy"][i].tolist() == [i + 0.5, -i]
        assert bytes(batch["text"][i].tolist()) == f"row {i:02}".encode()
    assert batch["label"].tolist() == [i % 7 + 1 for i in range(10)]


LENGTH = 700  # Neither pages nor what is decoded at once end where a list does.
NUMBERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32", "float64")


def random_rows(kind: str, count: int) -> np.ndarray:
    """Of any value that the type has, but for integers that no int64 holds."""
    random = np.random.default_rng(1)
    if kind.startswith("float"):
        return random.normal(scale=1e30, size=(count, LENGTH)).astype(kind)
    limits = np.iinfo(kind)
    return random.integers(limits.min, limits.max, size=(count, LENGTH), dtype=kind, endpoint=True)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("pages", [{"data_page_version": "1.0"}, {"data_page_version": "2.0", "use_dictionary": False}])
def test_lists_of_one_length_hold_what_was_written(tmp_path: Path, fixed: bool, pages: dict[str, Any]) -> None:
    """They are read in a way of their own, which is faster: the levels that nested columns have are only compared."""
    rows = {kind: random_rows(kind, 50) for kind in NUMBERS}
    lists = {
        kind: pa.array(list(values), pa.list_(pa.from_numpy_dtype(kind), LENGTH if fixed else -1))
        for kind, values in rows.items()
    }
    path = tmp_path / "lists.parquet"
    pq.write_table(pa.table(lists), path, row_group_size=21, data_page_size=3000, **pages)
    fields = {kind: floats(LENGTH) if kind.startswith("float") else ints(LENGTH) for kind in NUMBERS}
    (batch,) = Loader(path, fields, batch_size=50, shuffle=False, threads=1)
    for kind, values in rows.items():
        with np.errstate(over="ignore"):
            expected = values.astype("float32" if kind.startswith("float") else "int64")
        assert np.array_equal(np.asarray(batch[kind]), expected), kind


def rows_but_one(odd: str) -> list[Any]:
    rows: list[Any] = [[float(i)] * LENGTH for i in range(40)]
    if odd == "null":
        rows[30] = None
    elif odd == "null within":
        rows[30][5] = None
    else:  # There are as many values as in lists of one length.
        rows[31].append(rows[30].pop())
    return rows


@pytest.mark.parametrize("odd", ["null", "null within", "shorter"])
def test_a_list_that_differs_from_the_others_is_named(tmp_path: Path, odd: str) -> None:
    path = tmp_path / "odd.parquet"
    pq.write_table(pa.table({"x": pa.array(rows_but_one(odd), pa.list_(pa.float32()))}), path)
    options: dict[str, Any] = {"batch_size": 1, "shuffle": False, "threads": 1}
    with pytest.raises(CorruptDataError, match=r"odd\.parquet, row 30 \("):
        list(Loader(path, {"x": floats(LENGTH)}, **options))
    kept = Loader(path, {"x": floats(LENGTH)}, damaged="replace", **options)
    values = [int(batch["x"][0, 0]) for batch in kept]
    assert values[:30] + values[32:] == [*range(30), *range(32, 40)]


@pytest.mark.parametrize("shuffle", [True, "block", False])
@pytest.mark.parametrize("ranks", [1, 2])
def test_an_epoch_holds_every_row_once_over_all_ranks(folder: Path, shuffle: bool | str, ranks: int) -> None:
    loaders = [
        Loader(folder, {"row": ints()}, batch_size=5, shuffle=shuffle, seed=3, rank=rank, world_size=ranks, threads=3)
        for rank in range(ranks)
    ]
    batches = [[batch["row"].tolist() for batch in loader] for loader in loaders]
    order = [row for step in zip(*batches, strict=True) for part in step for row in part]
    assert sorted(order) == list(range(ROWS))
    assert (order == list(range(ROWS))) == (shuffle is False)
    alone = rows(
        Loader(folder, {"row": ints()}, batch_size=5, shuffle=shuffle, seed=3, rank=0, world_size=1, threads=1)
    )
    assert order == alone


def test_blocks_are_row_groups(folder: Path) -> None:
    options = {"batch_size": 4, "shuffle": "block", "open_blocks": 1, "seed": 1}
    order = rows(Loader(folder / "part-0.parquet", {"row": ints()}, **options))  # type: ignore[arg-type]
    assert {tuple(sorted(order[i : i + 8])) for i in (0, 8)} & {tuple(range(8)), tuple(range(8, 16))}


def test_so_many_row_groups_are_open_as_have_room_when_they_are_decoded(tmp_path: Path) -> None:
    """Dictionaries make these a quarter of their size in memory; what does not fit is decoded anew for every sample."""
    values = pa.array((np.arange(16 * 64 * 4096) % 7).astype(np.int16))
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(values, 4096)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=64)  # 512 KB.
    fields = {"x": raw("int16", 4096)}
    assert Loader(tmp_path, fields, batch_size=8, shuffle="block", memory_budget=8 << 20).open_blocks == 4
    assert Loader(tmp_path, fields, batch_size=8, shuffle="block").open_blocks == 16


def test_a_full_shuffle_of_what_does_not_fit_is_warned_of(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(64 * 4096)
    columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(values), 4096), "row": pa.array(range(64))}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=8, use_dictionary=False)
    options = {"batch_size": 2, "memory_budget": 2 << 20, "threads": 2}
    with pytest.warns(UserWarning, match="decode a row group of up to 8 rows anew; shuffle in blocks"):
        full = Loader(tmp_path, {"x": floats(4096), "row": ints()}, **options)  # type: ignore[arg-type]
    assert sorted(rows(full)) == list(range(64))
    assert full._core.memory_bytes <= 2 << 20
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Loader(tmp_path, {"x": floats(4096), "row": ints()}, shuffle="block", **options)  # type: ignore[arg-type]
        Loader(tmp_path, {"row": ints()}, **options)  # type: ignore[arg-type]  # The column alone fits.


def test_damage_is_an_error_or_gives_way_to_other_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with_checksums = {"compression": "none", "write_page_checksum": True, "use_dictionary": False}
    pq.write_table(table(0, 20), path, row_group_size=8, **with_checksums)
    contents = bytearray(path.read_bytes())
    contents[contents.index(b"row 09")] ^= 1
    path.write_bytes(contents)
    fields = {"text": raw("uint8", 6), "row": ints()}
    with pytest.raises(CorruptDataError, match=r"a\.parquet: row group 1, column 'text': .*CRC"):
        rows(Loader(path, fields, batch_size=2, shuffle=False))
    loader = Loader(path, fields, batch_size=2, shuffle=False, damaged="replace")
    seen = rows(loader)
    assert seen == [*range(8), *range(16, 20)]
    assert not set(seen[8:16]) & set(range(8, 16))
    assert loader.ledger().damaged == 8
    assert "row group 1, column 'text'" in loader.ledger().first_damage


def test_wrong_fields_are_named(folder: Path) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"has no column 'labels'; it has: image\.bytes, image\.path, label, row"
    ):
        Loader(folder, {"labels": ints()}, batch_size=2)
    with pytest.raises(
        CorruptDataError, match=r"part-\d\.parquet, row .*: field 'label': .* holds integers \(int32\) there"
    ):
        Loader(folder, {"label": floats()}, batch_size=2)
    pq.write_table(pa.table({"when": pa.array([1], pa.timestamp("s"))}), folder.parent / "other.parquet")
    with pytest.raises(UnsupportedError, match="column 'when' is of the type timestamp, which is not read"):
        Loader(folder.parent / "other.parquet", {"when": ints()}, batch_size=1)


WITHOUT = """
import sys
sys.modules["pyarrow"] = None
from gyre.data import Loader, ints, write_tfrecords
write_tfrecords(sys.argv[2], [{"label": 7}])
print([batch["label"].tolist() for batch in Loader(sys.argv[2], {"label": ints()}, batch_size=1)])
Loader(sys.argv[1], {"label": ints()}, batch_size=1)
"""


def test_without_pyarrow_everything_else_works_and_parquet_says_what_to_install(folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "GYRE_PYARROW": str(tmp_path)}
    command = [sys.executable, "-c", WITHOUT, str(folder / "part-0.parquet"), str(tmp_path / "a.tfrecord")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.strip() == "[[7]]"
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("gyre.errors.UnsupportedError: Parquet files are read with the Python package pyarrow 26.0")
    assert "pip install 'gyre-train[parquet]'" in last
