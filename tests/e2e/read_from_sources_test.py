"""`gyre.data.Loader`, `open_file` and the training programs over URLs: the same samples, bit for bit, as from a folder,
whatever the server does; or one error."""

from __future__ import annotations

import gc
import io
import os
import random
import re
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from azurite import ACCOUNT, PROGRAM, azurite
from fault_server import fault_server, seldom
from gyre.errors import CorruptDataError, Error, NotFoundError
from moto_s3 import FOLDER as MOTO
from moto_s3 import moto_s3, put
from nginx import nginx

from gyre.data import Loader, image, ints, open_file, raw, write_tfrecords

LONGEST_SILENCE_SECONDS = 60

needs_azurite = pytest.mark.skipif(
    not PROGRAM.exists(), reason="Azurite is not installed: `./dev setup test` does so where there is npm"
)
needs_moto = pytest.mark.skipif(not MOTO.exists(), reason="moto is not installed: `./dev setup test` does so")

FIELDS = {"x": raw("uint8", 3000), "label": ints()}


def write_records(folder: Path) -> None:
    """Files with many records and with one, compressed and not."""
    generator = np.random.default_rng(3)
    number = 0
    for file, (count, compression) in enumerate([(40, None), (30, "gzip"), (1, "gzip"), (1, None), (25, None)]):
        examples = []
        for _ in range(count):
            x = generator.integers(0, 256, 3000, dtype=np.uint8)
            examples.append({"x": x.tobytes(), "label": number})
            number += 1
        write_tfrecords(folder / f"part-{file}.tfrecord", examples, compression=compression)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    write_records(folder)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def batches(files: str | Path, shuffle: str | bool = True, *, epochs: int = 2, **options: object) -> list[bytes]:
    fields = options.pop("fields", FIELDS)
    loader = Loader(files, fields, batch_size=8, shuffle=shuffle, threads=3, output="numpy", **options)  # type: ignore[arg-type]
    return [batch[name].tobytes() for _ in range(epochs) for batch in loader for name in batch]


Serve = Callable[[Path], str]


@pytest.fixture(scope="module")
def serve(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Puts a folder into a store, and gives its URL there."""
    kind = request.param
    folder = tmp_path_factory.mktemp(kind)
    patch = pytest.MonkeyPatch()
    if kind == "azure":
        with azurite(folder) as server:
            patch.setenv("AZURE_STORAGE_CONNECTION_STRING", server.connection_string)

            def to_azure(source: Path) -> str:
                server.container(source.name, {f"set/{name}": body for name, body in files_of(source).items()})
                return f"az://{source.name}/set"

            yield to_azure
    elif kind == "s3":
        with moto_s3(folder, {}) as endpoint:
            patch.setenv("AWS_ENDPOINT_URL", endpoint)

            def to_s3(source: Path) -> str:
                port = int(endpoint.rsplit(":", 1)[1])
                put(port, f"/{source.name}", b"")
                for name, body in files_of(source).items():
                    put(port, f"/{source.name}/set/{name}", body)
                return f"s3://{source.name}/set"

            yield to_s3
    else:
        root = tmp_path_factory.getbasetemp()
        with nginx(root, folder) as url:
            yield lambda source: f"{url}{source.relative_to(root)}/"
    patch.undo()


STORES = [
    pytest.param("azure", marks=needs_azurite),
    pytest.param("s3", marks=needs_moto),
    "nginx",
]


@pytest.mark.parametrize("serve", STORES, indirect=True)
def test_a_store_gives_the_batches_of_a_folder(serve: Serve, records: Path) -> None:
    url = serve(records)
    pattern = url.rstrip("/") + "/part-*.tfrecord"
    for shuffle in (True, "block", False):
        local = Loader(records, FIELDS, batch_size=8, shuffle=shuffle)
        assert batches(pattern, shuffle) == batches(records, shuffle)
        assert Loader(url, FIELDS, batch_size=8, shuffle=shuffle).state_dict() == local.state_dict()
    with pytest.raises(Error, match="no file is called"):
        Loader(url.rstrip("/") + "/nothing-*", FIELDS, batch_size=8)


def write_images(folder: Path) -> None:
    from gyre.core import _core  # noqa: PLC0415

    for i in range(12):
        jpeg, _, _, _ = _core.synthetic_image(1, 3, 48, 0, i)
        (folder / f"class {i % 3}").mkdir(exist_ok=True)
        (folder / f"class {i % 3}" / f"ü {i}.jpg").write_bytes(jpeg)


def write_tar(folder: Path) -> None:
    with tarfile.open(folder / "shard.tar", "w") as archive:
        for i in range(20):
            for suffix, body in (("bin", bytes([i]) * 3000), ("cls", str(i).encode())):
                member = tarfile.TarInfo(f"{i:04}.{suffix}")
                member.size = len(body)
                archive.addfile(member, io.BytesIO(body))


def write_idx(folder: Path) -> None:
    head = b"\x00\x00\x08"
    pixels = np.random.default_rng(1).integers(0, 256, (50, 9, 9), dtype=np.uint8)
    (folder / "images-idx3-ubyte").write_bytes(
        head + b"\x03" + b"".join(n.to_bytes(4, "big") for n in pixels.shape) + pixels.tobytes()
    )
    (folder / "labels-idx1-ubyte").write_bytes(
        head + b"\x01" + (50).to_bytes(4, "big") + bytes(i % 10 for i in range(50))
    )


def write_cifar10(folder: Path) -> None:
    for name in ("data_batch_1.bin", "data_batch_2.bin"):
        body = np.random.default_rng(len(name)).integers(0, 256, (10, 3073), dtype=np.uint8)
        body[:, 0] %= 10
        (folder / name).write_bytes(body.tobytes())


PIXELS = {"image": image(9, augment=False), "label": ints()}
FORMATS = {
    "images": (write_images, PIXELS),
    "tar": (write_tar, {"bin": raw("uint8", 3000), "label": ints()}),
    "idx": (write_idx, PIXELS),
    "cifar10": (write_cifar10, PIXELS),
}


@pytest.mark.parametrize("serve", ["nginx", pytest.param("azure", marks=needs_azurite)], indirect=True)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_read_from_a_store(serve: Serve, kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    write, fields = FORMATS[kind]
    folder = tmp_path_factory.mktemp(kind)
    write(folder)
    assert batches(serve(folder), fields=fields) == batches(folder, fields=fields)


@pytest.mark.parametrize("seed", range(3))
def test_a_server_that_fails_changes_no_byte(records: Path, seed: int) -> None:
    with fault_server(files_of(records), seldom(seed, 0.3)) as server:
        for shuffle in (True, "block"):
            assert batches(server.url, shuffle) == batches(records, shuffle)
        assert server.faults, "the server was to fail"


def test_what_was_announced_is_read_once(records: Path) -> None:
    """What is read ahead and thrown away would be paid for twice."""
    with fault_server(files_of(records)) as server:
        loader = Loader(f"{server.url}part-[034].tfrecord", FIELDS, batch_size=4, threads=2, output="numpy")
        before = server.sent_bytes
        samples = sum(batch.counted for batch in loader)
        stored = samples * 3100
        # The server counts an answer after it was sent: the constructor's last one, of 64 KiB, perhaps only now.
        assert server.sent_bytes - before < 1.1 * stored + 65_536


def test_each_of_four_ranks_reads_its_own_quarter(tmp_path: Path) -> None:
    """Affinity. The model of what leaves the source for a rank: the files of its streams, each once; and in the
    constructor two looks at the first file's beginning, for its format and its compression, and one file for a first
    sample, which may have to be read again."""
    files, records, look = 24, 16, 65_536
    generator = np.random.default_rng(5)
    fields = {"x": raw("uint8", 30_000), "label": ints()}
    for file in range(files):
        examples = [
            {"x": generator.integers(0, 256, 30_000, dtype=np.uint8).tobytes(), "label": file * records + i}
            for i in range(records)
        ]
        write_tfrecords(tmp_path / f"part-{file:02}.tfrecord", examples, compression="gzip")
    contents = files_of(tmp_path)
    sizes = [len(contents[f"part-{file:02}.tfrecord"]) for file in range(files)]
    assert min(sizes) > 6 * look, "what is read twice of each file must show"
    for world in (1, 2, 4, 8):
        read: list[int] = []
        for rank in range(world):
            with fault_server(contents) as server:
                loader = Loader(
                    server.url, fields, batch_size=16 // world, shuffle="block", streams=4, open_blocks=2,
                    records_per_file=records, rank=rank, world_size=world, threads=2, output="numpy",
                )  # fmt: skip
                labels = [int(label) for batch in loader for label in batch["label"][: batch.counted]]
                del loader
            own = sorted({label // records for label in labels})
            assert len(labels) == files * records // world
            assert len(own) == files // min(world, 4), f"rank {rank} of {world}"
            model = sum(sizes[file] for file in own)
            assert model <= server.sent_bytes <= model + max(sizes) + 2 * look, f"rank {rank} of {world}"
            read += own
        assert sorted(read) == sorted([*range(files)] * max(1, world // 4)), "two of 8 ranks share each stream"


def test_an_object_that_changes_is_one_error_and_no_mixture(records: Path) -> None:
    with fault_server(files_of(records)) as server:
        loader = Loader(server.url, FIELDS, batch_size=8, shuffle="block", output="numpy")
        server.etags["part-4.tfrecord"] = '"another"'
        with pytest.raises(CorruptDataError, match=r"part-4\.tfrecord.*has changed since it was listed"):
            for _ in loader:
                pass


def test_the_first_batch_takes_no_more_than_three_round_trips(tmp_path: Path) -> None:
    write_images(tmp_path)
    delay = 0.0  # Of each answer: a round trip.

    def late(_name: str, _number: int) -> None:
        time.sleep(delay)

    images = {name.split("/")[1]: body for name, body in files_of(tmp_path).items()}
    with fault_server(images, late) as server:
        loader = Loader(server.url, {"image": image(9, augment=False)}, batch_size=12, threads=1, output="numpy")
        delay = 1.0
        began = time.monotonic()
        assert next(iter(loader)).counted == 12
        assert time.monotonic() - began < 3 * delay


def test_a_loader_that_waits_for_a_silent_server_can_be_left(records: Path) -> None:
    """It reads ahead into files that never come, and is dropped there."""
    armed, waiting, released = threading.Event(), threading.Event(), threading.Event()

    def choose(name: str, _number: int) -> None:
        if armed.is_set() and name != "part-0.tfrecord":
            waiting.set()
            released.wait(LONGEST_SILENCE_SECONDS)

    with fault_server(files_of(records), choose) as server:
        loader = Loader(server.url, FIELDS, batch_size=8, shuffle=False, threads=1, output="numpy")
        armed.set()
        batches = iter(loader)
        next(batches)
        assert waiting.wait(LONGEST_SILENCE_SECONDS)
        began = time.monotonic()
        del loader, batches  # Where this waits for the server, it does so until its patience ends: two minutes.
        gc.collect()
        assert time.monotonic() - began < LONGEST_SILENCE_SECONDS / 2
        released.set()


def test_a_silent_server_does_not_hold_up_the_files_of_another(tmp_path: Path) -> None:
    """Threads that waited for a file read the next one ahead, from a server that said nothing for the two minutes and
    more that it was waited for; meanwhile the batch lacked their samples."""
    for part, count in enumerate([8, 64, 64]):  # The loader looks at the first one before it begins.
        examples = [{"x": bytes(3000), "label": number} for number in range(count)]
        write_tfrecords(tmp_path / f"part-{part}.tfrecord", examples, compression="gzip")
    silent, released = threading.Event(), threading.Event()

    def choose(name: str, _number: int) -> None:
        if silent.is_set() and name == "part-2.tfrecord":
            released.wait(LONGEST_SILENCE_SECONDS)
        elif silent.is_set():
            time.sleep(0.5)  # So long that all threads wait for it.

    with fault_server(files_of(tmp_path), choose) as server:
        loader = Loader(server.url, FIELDS, batch_size=8, shuffle=False, threads=4, output="numpy")
        silent.set()
        began = time.monotonic()
        batches = iter(loader)
        assert [next(batches)["label"].ravel().tolist() for _ in range(2)] == [list(range(8))] * 2
        assert time.monotonic() - began < LONGEST_SILENCE_SECONDS / 2
        released.set()
        assert sum(batch.counted for batch in batches) == 120
        assert server.requests["part-2.tfrecord"] == server.requests["part-1.tfrecord"], (
            "it is read as often as another"
        )


@needs_azurite
def test_no_message_shows_a_signature(tmp_path: Path, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with azurite(tmp_path) as server:
        server.container("data", {f"set/{name}": body for name, body in files_of(records).items()})
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"BlobEndpoint={server.endpoint};AccountName={ACCOUNT}")
        sas = server.sas()
        url = f"{server.endpoint}/data/set?{sas}"
        assert batches(url) == batches(records)
        loader = Loader(url, FIELDS, batch_size=8)
        assert loader.name_of(0) == f"{server.endpoint}/data/set/part-0.tfrecord:0"
        pattern = f"{server.endpoint}/data/set/part-[03]*?{sas}"
        assert len(batches(pattern, epochs=1)) > 0
        texts = [loader.name_of(1), loader._row]
        for wrong in (f"{server.endpoint}/data/none?{sas}", f"{server.endpoint}/data/set?{sas[:-9]}AAAAAA%3D"):
            with pytest.raises(Error) as error:
                Loader(wrong, FIELDS, batch_size=8)
            texts.append(str(error.value))
        with open_file(f"{server.endpoint}/data/set/part-3.tfrecord?{sas}") as file:
            assert file.read() == (records / "part-3.tfrecord").read_bytes()
            texts.append(file.raw.name)  # type: ignore[attr-defined]
        assert not [text for text in texts if "sig=" in text or sas[-20:] in text]


def test_a_file_object_seeks_and_reads_as_a_file_of_this_machine_does(tmp_path: Path) -> None:
    body = random.Random(5).randbytes(3_000_000)
    (tmp_path / "a.bin").write_bytes(body)
    with fault_server({"a.bin": body}, seldom(1, 0.3)) as server:
        with open_file(f"{server.url}a.bin") as file, (tmp_path / "a.bin").open("rb") as local:
            generator = random.Random(6)
            for _ in range(60):
                position, count = generator.randrange(3_100_000), generator.randrange(400_000)
                assert file.seek(position) == local.seek(position)
                assert file.read(count) == local.read(count)
            assert file.seek(-5, os.SEEK_END) == local.seek(-5, os.SEEK_END)
            assert file.read() == local.read()
        with pytest.raises(NotFoundError):
            open_file(f"{server.url}b.bin")
    with open_file(tmp_path / "a.bin") as file:
        assert file.read() == body


def test_the_rest_of_a_file_is_read_in_large_pieces() -> None:
    body = random.Random(7).randbytes(20_000_000)
    with fault_server({"a.bin": body}) as server, open_file(f"{server.url}a.bin") as file:
        assert file.read(3) + file.read() == body
        assert server.requests["a.bin"] <= 8, "pieces of a few MB"


def test_torch_loads_from_a_url() -> None:
    buffer = io.BytesIO()
    torch.save({"w": torch.arange(1000)}, buffer)
    with fault_server({"w.pt": buffer.getvalue()}) as server, open_file(f"{server.url}w.pt") as file:
        assert torch.equal(torch.load(file)["w"], torch.arange(1000))


@pytest.mark.parametrize("serve", ["nginx", pytest.param("azure", marks=needs_azurite)], indirect=True)
def test_a_program_trains_from_a_url_as_from_a_folder(
    serve: Serve, gyre: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cosmo")
    make = ["-m", "gyre.datasets", "cosmo", "--out", str(folder), "--train", "8", "--validation", "4", "--size", "32"]
    subprocess.run([sys.executable, *make], check=True, capture_output=True)
    hashes = []
    for place in (str(folder), serve(folder)):
        command = [gyre.parent / "gyre-cosmoflow", "--data-dir", place, "--epochs", "1", "--batch-size", "2"]
        output = tmp_path_factory.mktemp("out")
        done = subprocess.run(
            [*map(str, command), "--output-dir", str(output), "--print-hashes"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        hashes.append(re.findall(r"[0-9a-f]{16}", done.stdout))
    assert hashes[0]
    assert hashes[0] == hashes[1]
