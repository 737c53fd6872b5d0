"""gyre.data.Loader as training scripts use it: what a batch holds, who gets what, and going on in the middle."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from gyre.errors import CorruptDataError, Error, InvalidArgumentError

from gyre.data import Batch, Loader, floats, ints, length, raw, write_tfrecords

FIELDS = {"x": raw("int16", (2, 3)), "y": floats(2), "label": ints()}


def write_files(folder: Path, files: int, records: int) -> None:
    for number in range(files):
        examples = [
            {
                "x": np.full((2, 3), number * records + i, dtype="<i2").tobytes(),
                "y": [0.5, float(number * records + i)],
                "label": number * records + i,
            }
            for i in range(records)
        ]
        compression = (None, "gzip", "zlib")[number % 3]
        write_tfrecords(folder / f"part-{number:03}.tfrecord", examples, compression=compression)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path, files=4, records=5)
    return tmp_path


def labels(loader: Loader) -> list[int]:
    return [label for batch in loader for label in batch["label"][: batch.counted].tolist()]


def test_a_batch_holds_tensors_of_the_fields_shapes_and_types(folder: Path) -> None:
    loader = Loader(folder, FIELDS, batch_size=4, shuffle=False)
    batch = next(iter(loader))
    assert {name: (tuple(t.shape), t.dtype) for name, t in batch.items()} == {
        "x": ((4, 2, 3), torch.int16),
        "y": ((4, 2), torch.float32),
        "label": ((4,), torch.int64),
    }
    assert batch["label"].tolist() == [0, 1, 2, 3]
    assert torch.equal(batch["x"][2], torch.full((2, 3), 2, dtype=torch.int16))
    assert batch["y"][3].tolist() == [0.5, 3.0]
    assert (batch.counted, batch.epoch, batch.step, len(loader), loader.samples) == (4, 0, 0, 5, 20)


def test_values_become_floats_or_their_logarithm_on_the_way(folder: Path) -> None:
    fields = {"x": raw("int16", (2, 3), dtype="float32", transform="log1p")}
    for batch, start in zip(Loader(folder, fields, batch_size=10, shuffle=False), (0, 10), strict=True):
        expected = torch.log1p(torch.arange(start, start + 10).float())
        torch.testing.assert_close(batch["x"][:, 1, 2], expected, rtol=2e-7, atol=0)
    fields = {"x": raw("int16", (2, 3), dtype="bfloat16")}
    batch = next(iter(Loader(folder, fields, batch_size=20, shuffle=False)))
    assert batch["x"].dtype == torch.bfloat16
    assert torch.equal(batch["x"][:, 0, 0], torch.arange(20).bfloat16())


def test_pixels_are_scaled_and_half_floats_are_those_of_numpy(tmp_path: Path) -> None:
    pixels = np.arange(256, dtype=np.uint8)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    wide = np.concatenate([wide * 10.0**e for e in range(-9, 6)]).astype(np.float32)
    write_tfrecords(tmp_path / "x", [{"p": pixels.tobytes(), "h": halves.tobytes(), "w": wide}])
    fields = {
        "scaled": raw("uint8", 256, dtype="float32", scale=1 / 255, key="p"),
        "log": raw("uint8", 256, dtype="float32", scale=2, transform="log1p", key="p"),
        "half": raw("float16", 1 << 16, key="h"),
        "widened": raw("float16", 1 << 16, dtype="float32", key="h"),
        "narrow": floats(len(wide), dtype="float16", key="w"),
    }
    (batch,) = Loader(tmp_path, fields, batch_size=1, output="numpy")
    np.testing.assert_allclose(batch["scaled"][0], pixels / 255, rtol=1e-6)
    np.testing.assert_allclose(batch["log"][0], np.log1p(2.0 * pixels), rtol=1e-6)
    np.testing.assert_array_equal(batch["half"][0].view(np.uint16), halves.view(np.uint16))
    np.testing.assert_array_equal(batch["widened"][0], halves.astype(np.float32))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(batch["narrow"][0], wide.astype(np.float16))


def test_features_may_be_shorter_or_missing_if_the_field_says_what_stands_there(tmp_path: Path) -> None:
    examples: list[dict[str, object]] = [
        {"tokens": list(range(n)), "text": b"ab" * n, "real": [0.5] * n} for n in range(1, 5)
    ]
    examples.append({"other": 1})
    write_tfrecords(tmp_path / "x", examples)
    fields = {
        "tokens": ints(4, pad=-1, default=-2, offset=10),
        "count": length("tokens"),
        "text": raw("uint8", 8, pad=32, default=0),
        "bytes": length("text"),
        "real": floats((2, 2), pad=float("nan"), default=7, dtype="bfloat16"),
    }
    (batch,) = Loader(tmp_path, fields, batch_size=5, shuffle=False)
    assert batch["tokens"].tolist() == [
        [10, -1, -1, -1],
        [10, 11, -1, -1],
        [10, 11, 12, -1],
        [10, 11, 12, 13],
        [-2] * 4,
    ]
    assert batch["count"].tolist() == [1, 2, 3, 4, 0]
    assert [bytes(text) for text in batch["text"].tolist()] == [
        b"ab      ",
        b"abab    ",
        b"ababab  ",
        b"abababab",
        bytes(8),
    ]
    assert batch["bytes"].tolist() == [2, 4, 6, 8, 0]
    assert batch["real"].isnan().sum().item() == 6
    assert batch["real"][4].tolist() == [[7, 7], [7, 7]]
    for field, message in (
        (ints(3, pad=0, default=0), r"holds 4 integers there; a field of the shape \[3\] needs at most 3"),
        (ints(4, pad=0), "has no feature 'tokens'"),
        (ints(4, default=0), r"needs 4"),
    ):
        with pytest.raises(CorruptDataError, match=message):
            list(Loader(tmp_path, {"tokens": field}, batch_size=5, shuffle=False))
    with pytest.raises(InvalidArgumentError, match=r"pad=0\.5 is not an integer"):
        raw("int64", 4, pad=0.5)
    with pytest.raises(InvalidArgumentError, match="pad=256 is not an integer from 0 to 255"):
        raw("uint8", 4, pad=256)
    with pytest.raises(InvalidArgumentError, match="scale=inf"):
        raw("uint8", 4, dtype="float32", scale=float("inf"))


@pytest.mark.parametrize(
    "value", [2**63 + 5, np.uint64(2**63 + 5), [1, 2**63], [-1, 2**63], 2**64, -(2**63) - 1, 1e39, [0.0, -1e300]]
)
def test_numbers_that_an_example_cannot_hold_are_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(InvalidArgumentError, match="feature 'x'"):
        write_tfrecords(tmp_path / "x", [{"x": value}])


def test_byte_strings_of_every_kind_are_byte_strings(tmp_path: Path) -> None:
    values = {"a": b"abc", "b": bytearray(b"abc"), "c": memoryview(b"abc")}
    write_tfrecords(tmp_path / "x", [{**values, "least": -(2**63), "infinite": float("inf")}])
    fields = {**{name: raw("uint8", 3) for name in values}, "least": ints(), "infinite": floats()}
    (batch,) = Loader(tmp_path, fields, batch_size=1)
    assert all(bytes(batch[name][0].tolist()) == b"abc" for name in values)
    assert batch["least"].item() == -(2**63)
    assert batch["infinite"].item() == float("inf")


def test_numpy_arrays_come_without_a_copy(folder: Path) -> None:
    batch = next(iter(Loader(folder, FIELDS, batch_size=4, shuffle=False, output="numpy")))
    assert isinstance(batch["x"], np.ndarray)
    assert batch["x"].shape == (4, 2, 3)
    assert not batch["x"].flags["OWNDATA"]


def test_each_loop_is_an_epoch_with_an_order_of_its_own_that_the_seed_fixes(folder: Path) -> None:
    loader = Loader(folder, FIELDS, batch_size=3, seed=5)
    first, second = labels(loader), labels(loader)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    loader.set_epoch(0)
    assert labels(loader) == first
    assert labels(Loader(folder, FIELDS, batch_size=3, seed=5, threads=1)) == first
    assert labels(Loader(folder, FIELDS, batch_size=3, seed=6)) != first


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_see_one_global_order_and_equally_many_batches(folder: Path, world_size: int) -> None:
    loaders = [Loader(folder, FIELDS, batch_size=2, seed=1, rank=r, world_size=world_size) for r in range(world_size)]
    assert len({len(loader) for loader in loaders}) == 1
    order = [
        label
        for batches in zip(*loaders, strict=True)
        for batch in batches
        for label in batch["label"][: batch.counted].tolist()
    ]
    assert order == labels(Loader(folder, FIELDS, batch_size=1, seed=1))


def test_what_does_not_fill_a_batch_is_marked_or_dropped(folder: Path) -> None:
    short = [(len(batch["label"]), batch.counted) for batch in Loader(folder, FIELDS, batch_size=8)]
    assert short == [(8, 8), (8, 8), (4, 4)], "one rank's last batch is short"
    padded = [
        [
            (len(batch["label"]), batch.counted, batch.counted_globally)
            for batch in Loader(folder, FIELDS, batch_size=6, rank=rank, world_size=3)
        ]
        for rank in range(3)
    ]
    assert padded == [[(6, 6, 18), (6, 2, 2)], [(6, 6, 18), (6, 0, 2)], [(6, 6, 18), (6, 0, 2)]]
    dropped = [batch.counted for batch in Loader(folder, FIELDS, batch_size=8, drop_last=True)]
    assert dropped == [8, 8]


def test_a_run_goes_on_with_the_sample_it_would_have_had_next(folder: Path) -> None:
    loader = Loader(folder, FIELDS, batch_size=3, seed=2)
    whole = [batch["label"].tolist() for _ in range(2) for batch in loader]
    for taken in range(len(whole)):
        interrupted = Loader(folder, FIELDS, batch_size=3, seed=2)
        seen: list[list[int]] = []
        while len(seen) < taken:
            for batch in interrupted:
                seen.append(batch["label"].tolist())
                if len(seen) == taken:
                    break
        resumed = Loader(folder, FIELDS, batch_size=3, seed=2, threads=1)
        resumed.load_state_dict(interrupted.state_dict())
        while len(seen) < len(whole):
            seen.extend(batch["label"].tolist() for batch in resumed)
        assert seen[: len(whole)] == whole, f"after {taken} batches"


def test_a_loop_that_another_one_has_ended_says_so(folder: Path) -> None:
    loader = Loader(folder, FIELDS, batch_size=3)
    outer = iter(loader)
    next(outer)
    assert next(iter(loader)).epoch == 1
    with pytest.raises(InvalidArgumentError, match=r"loop over epoch 0 ended after step 0, because another loop"):
        next(outer)
    assert len(labels(loader)) == 20


def test_a_batch_that_moves_keeps_what_is_known_of_it(folder: Path) -> None:
    batch = next(iter(Loader(folder, FIELDS, batch_size=6, rank=1, world_size=2))).to("cpu")
    assert (batch.counted, batch.counted_globally, batch.epoch, batch.step) == (6, 12, 0, 0)


def test_an_evaluation_over_ranks_is_exact_as_the_guide_writes_it(folder: Path) -> None:
    """The guide's code, with three ranks in turn: none divides by zero, and each sample counts once."""
    guide = (Path(__file__).parents[2] / "docs/guide/data.md").read_text()
    code = guide.split("### Exact evaluation")[1].split("```python\n")[1].split("```")[0]
    totals = torch.zeros(2, dtype=torch.float64)
    for rank in range(3):
        loader = Loader(folder, FIELDS, batch_size=6, shuffle=False, rank=rank, world_size=3)
        names: dict[str, object] = {"loader": _renamed(loader), "torch": torch}
        names["model"] = lambda values: torch.nn.functional.one_hot(values // 2 * 2, 20)  # Even labels are right.
        names["dist"] = type("OneAtATime", (), {"all_reduce": staticmethod(totals.add_)})
        exec(code, names)
    assert totals.tolist() == [10, 20]


def _renamed(loader: Loader) -> Iterator[Batch]:
    for batch in loader:
        batch["image"] = batch["label"]
        yield batch


def test_a_state_of_other_data_is_refused(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    state = Loader(folder, FIELDS, batch_size=3, seed=2).state_dict()
    with pytest.raises(InvalidArgumentError, match=r"taken with seed 2, and this loader has 3"):
        Loader(folder, FIELDS, batch_size=3, seed=3).load_state_dict(state)
    with pytest.raises(InvalidArgumentError, match="global_batch 3, and this loader has 4"):
        Loader(folder, FIELDS, batch_size=4, seed=2).load_state_dict(state)
    with pytest.raises(InvalidArgumentError, match="shuffle full, and this loader has block"):
        Loader(folder, FIELDS, batch_size=3, seed=2, shuffle="block").load_state_dict(state)
    moved = tmp_path_factory.mktemp("moved")
    for path in folder.iterdir():
        (moved / path.name).write_bytes(path.read_bytes())
    Loader(moved, FIELDS, batch_size=3, seed=2).load_state_dict(state)
    (moved / "part-000.tfrecord").rename(moved / "part-0000.tfrecord")
    with pytest.raises(InvalidArgumentError, match="taken with other files"):
        Loader(moved, FIELDS, batch_size=3, seed=2).load_state_dict(state)
    (moved / "part-0000.tfrecord").unlink()
    write_tfrecords(moved / "part-000.tfrecord", [{"x": bytes(12), "y": [0.0, 0.0], "label": 1}] * 5)
    with pytest.raises(InvalidArgumentError, match="taken with other files"):
        Loader(moved, FIELDS, batch_size=3, seed=2).load_state_dict(state)


def test_blocks_keep_a_files_samples_together(folder: Path) -> None:
    assert sorted(labels(Loader(folder, FIELDS, batch_size=5, shuffle="block", seed=4))) == list(range(20))
    order = labels(Loader(folder, FIELDS, batch_size=5, shuffle="block", seed=4, open_blocks=1))
    assert sorted(order) == list(range(20))
    for start in range(0, 20, 5):
        assert len({label // 5 for label in order[start : start + 5]}) == 1


def test_batches_may_be_kept_until_the_budget_is_used_up(tmp_path: Path) -> None:
    write_files(tmp_path, files=1, records=400)
    loader = Loader(tmp_path, FIELDS, batch_size=1, memory_budget=50_000)  # Less than all batches need.
    with pytest.raises(Error, match=r"the program holds all \d+ batches"):
        list(loader)
    assert len(labels(loader)) == 400


def test_a_batch_outlives_its_loader(folder: Path) -> None:
    batch = next(iter(Loader(folder, FIELDS, batch_size=4, shuffle=False)))
    kept = batch["x"][1:]
    del batch
    assert kept[0, 0, 0] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"files": "/nowhere/*.tfrecord"}, "no file is called '/nowhere/"),
        ({"files": []}, "the list of files is empty"),
        ({"batch_size": 0}, "batch_size=0 is not an integer from 1"),
        ({"batch_size": 2.5}, "batch_size=2.5 is not an integer"),
        ({"seed": -1}, "seed=-1 is not an integer from 0"),
        ({"seed": 1 << 63}, "is not an integer from 0"),
        ({"memory_budget": -1}, "memory_budget=-1 is not an integer from 1"),
        ({"prefetch": -1}, "prefetch=-1"),
        ({"threads": 0}, "threads=0"),
        ({"records_per_file": 0}, "records_per_file=0"),
        ({"shuffle": "fast"}, "shuffle='fast' is none of"),
        ({"shuffle": "block", "open_blocks": 65}, "65 open blocks; at most 64"),
        ({"shuffle": "block", "open_blocks": 0}, "open_blocks=0"),
        ({"shuffle": "block", "streams": 0}, "streams=0"),
        ({"shuffle": "block", "streams": 1 << 20}, "1048576 streams; from 1 to 65536"),
        ({"output": "jax"}, "neither 'torch' nor 'numpy'"),
        ({"rank": 1}, "give both rank and world_size"),
        ({"rank": 4, "world_size": 4}, "no rank 4 among 4"),
        ({"memory_budget": 50}, r"budget of 50 B is too small: .* for 2 batches of 2 samples .*more than \d+ bytes"),
        ({"memory_budget": 400}, r"budget of 400 B is too small: .* for what \d+ threads? read .*at least \d+ bytes"),
        ({"fields": {}}, "at least one field"),
        ({"fields": {"z": ints()}}, r"field 'z': the record has no feature 'z'; it has: x, y, label"),
        ({"fields": {"x": raw("int16", 7)}}, r"holds 12 bytes there; a field of the shape \[7\] of int16 needs 14"),
        ({"fields": {"x": raw("int12", 6)}}, "'int12' is none of"),
        (
            {"fields": {"y": floats(3)}},
            r"field 'y': the record holds 2 floats there; a field of the shape \[3\] needs 3",
        ),
        ({"fields": {"label": ints(4)}}, r"the record holds 1 integers there; a field of the shape \[4\] needs 4"),
        ({"fields": {"x": raw("int16", (0,))}}, "cannot have the shape"),
    ],
)
def test_what_cannot_be_is_one_error_at_once(folder: Path, change: dict[str, object], message: str) -> None:
    options: dict[str, object] = {"files": folder, "fields": FIELDS, "batch_size": 2, **change}
    with pytest.raises(Error, match=message):
        Loader(options.pop("files"), options.pop("fields"), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"])
def test_a_launchers_variable_that_is_not_a_number_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for other in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(other, "two" if other == name else "1" if "SIZE" in other else "0")
    with pytest.raises(InvalidArgumentError, match=f"{name} is 'two'"):
        Loader(folder, FIELDS, batch_size=2)


def test_block_shuffle_mixes_files_of_one_class_each(tmp_path: Path) -> None:
    """Each batch used to be of one class."""
    for label in range(20):
        write_tfrecords(tmp_path / f"part-{label:03}", [{"label": label}] * 100, compression="gzip")
    loader = Loader(tmp_path, {"label": ints()}, batch_size=64, shuffle="block", drop_last=True)
    assert loader.open_blocks == 16
    classes = [len(batch["label"].unique()) for batch in loader]
    assert min(classes) >= 5
    assert sum(classes) / len(classes) > 10
    alone = Loader(tmp_path, {"label": ints()}, batch_size=50, shuffle="block", open_blocks=1)
    assert {len(batch["label"].unique()) for batch in alone} == {1}


def test_a_damaged_file_is_named_with_record_and_offset(folder: Path) -> None:
    path = folder / "part-000.tfrecord"
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)
    with pytest.raises(CorruptDataError, match=r"part-000\.tfrecord: record \d, which begins at byte \d+"):
        list(Loader(folder, FIELDS, batch_size=20, shuffle=False))


def test_the_ledger_says_where_the_time_went(folder: Path) -> None:
    loader = Loader(folder, FIELDS, batch_size=2)
    assert len(labels(loader)) == 20
    ledger = loader.ledger()
    assert ledger.batches == 10
    assert set(ledger.worked) == {"source", "inflate", "decode", "transform", "assemble"}
    assert sum(ledger.worked.values()) > 0
    assert ledger.waited == pytest.approx(sum(ledger.waited_for.values()), rel=0.05, abs=1e-3)
    assert str(ledger).startswith("10 batches, the first after ")
