"""`gyre stage` from object stores: Azurite and moto, with everybody's ways to sign in, and what keeps us out."""

from __future__ import annotations

import gzip
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from azurite import ACCOUNT, KEY, PROGRAM, Azurite, azurite
from moto_s3 import FOLDER as MOTO
from moto_s3 import moto_s3
from staging import contents, receipt_of, run_stage, some_files

needs_azurite = pytest.mark.skipif(
    not PROGRAM.exists(), reason="Azurite is not installed: `./dev setup test` does so where there is npm"
)
needs_moto = pytest.mark.skipif(not MOTO.exists(), reason="moto is not installed: `./dev setup test` does so")


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Azurite, dict[str, bytes]]]:
    files = {f"set/{name}": body for name, body in some_files(11).items() if body} | {
        "set2/other.bin": b"not of the set",
        "set/part_001.bin#1?c%20.bin": b"a name that begins like another",
    }
    zipped = {"set/zip_000.tfrecord.gz": b"record " * 900, "set/zip_001.tfrecord.gz": b"another"}
    with azurite(tmp_path_factory.mktemp("azurite")) as server:
        server.container(
            "data", files | {name: gzip.compress(body) for name, body in zipped.items()}, dict.fromkeys(zipped, "gzip")
        )
        yield server, files | {name.removesuffix(".gz"): body for name, body in zipped.items()}


def set_of(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name.removeprefix("set/"): body for name, body in files.items() if name.startswith("set/")}


@needs_azurite
@pytest.mark.parametrize(
    "way", ["key", "sas in the environment", "sas in a file", "sas on standard input", "sas of a blob's kind"]
)
def test_a_container_is_staged(gyre: Path, tmp_path: Path, blobs: tuple[Azurite, dict[str, bytes]], way: str) -> None:
    server, files = blobs
    source = f"{server.endpoint}/data/set"
    words: list[str | Path] = ["--to", tmp_path / "there", "--decompress"]
    environment = {}
    given = None
    if way == "key":
        source, environment = "az://data/set", {"AZURE_STORAGE_CONNECTION_STRING": server.connection_string}
    elif way == "sas in the environment":
        source = f"{source}/"
        account = f"BlobEndpoint={server.endpoint};SharedAccessSignature={server.sas()}"
        environment = {"AZURE_STORAGE_CONNECTION_STRING": account}
    elif way == "sas in a file":
        (tmp_path / "sas.txt").write_text("?" + server.sas() + "\n")
        account = f"BlobEndpoint={server.endpoint};AccountName={ACCOUNT}"
        environment, words = {"AZURE_STORAGE_CONNECTION_STRING": account}, [*words, "--sas", f"@{tmp_path}/sas.txt"]
    elif way == "sas on standard input":
        environment = {"AZURE_STORAGE_CONNECTION_STRING": f"BlobEndpoint={server.endpoint};AccountName={ACCOUNT}"}
        given, words = server.sas(), [*words, "--sas", "-"]
    else:
        source = f"{server.endpoint}/data/set/part_001.bin?{server.sas(permissions='r', types='o')}"
        files = {"set/part_001.bin": files["set/part_001.bin"]}
    done = run_stage(gyre, source, *words, environment=environment, given=given)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "there") == set_of(files)
    receipt = receipt_of(tmp_path / "there")
    assert receipt["checked_md5"] == len(set_of(files))
    assert receipt["checked_gzip"] == (0 if way.endswith("kind") else 2)
    assert "sig=" not in json.dumps(receipt) + done.stdout


@needs_azurite
def test_azcopys_own_command_line(gyre: Path, tmp_path: Path, blobs: tuple[Azurite, dict[str, bytes]]) -> None:
    """Article 004's, with the program's name changed: the container's folder is made, and the signature is hidden."""
    server, files = blobs
    words = [
        "copy",
        "--recursive",
        "--decompress",
        "--overwrite",
        "false",
        f"{server.endpoint}/data/set?{server.sas()}",
    ]
    done = run_stage(gyre, *words, str(tmp_path), "--include-pattern", "zip_*.tfrecord.gz;part_000.bin")
    assert done.returncode == 0, done.stderr
    wanted = {"zip_000.tfrecord", "zip_001.tfrecord", "part_000.bin"}
    assert contents(tmp_path) == {f"set/{name}": body for name, body in set_of(files).items() if name in wanted}
    assert "--sas @FILE" in done.stderr
    assert "sig=" not in done.stderr
    (tmp_path / "set/part_000.bin").write_bytes(b"mine")
    again = run_stage(gyre, *words, str(tmp_path), "--include-pattern", "part_000.bin")
    assert (tmp_path / "set/part_000.bin").read_bytes() == b"mine"
    assert "1 kept as they were and not checked" in again.stdout


@needs_azurite
def test_a_signature_is_in_no_processs_arguments(
    gyre: Path, tmp_path: Path, blobs: tuple[Azurite, dict[str, bytes]]
) -> None:
    server, _ = blobs
    words = [str(gyre), "stage", f"{server.endpoint}/data/set?{server.sas()}", "--to", str(tmp_path), "--cap-mbps", "1"]
    with subprocess.Popen(words, stdout=-1, stderr=-1) as running:
        while not (tmp_path / ".gyre-stage").exists():
            assert running.poll() is None
            time.sleep(0.01)
        arguments = Path(f"/proc/{running.pid}/cmdline").read_bytes()
        running.kill()
    assert b"sig=xxxx" in arguments
    assert b"%3D" not in arguments.split(b"sig=")[1].split(b"&")[0]


@needs_azurite
def test_an_expired_signature_is_read_again_from_its_file(
    gyre: Path, tmp_path: Path, blobs: tuple[Azurite, dict[str, bytes]]
) -> None:
    server, files = blobs
    sas = tmp_path / "sas.txt"
    sas.write_text(server.sas(seconds=3))
    environment = {"AZURE_STORAGE_CONNECTION_STRING": f"BlobEndpoint={server.endpoint};AccountName={ACCOUNT}"}
    total = sum(map(len, set_of(files).values()))
    words = ["stage", "az://data/set", "--to", str(tmp_path / "there"), "--sas", f"@{sas}", "--connections", "1"]
    with subprocess.Popen(
        [str(gyre), *words, "--decompress", "--cap-mbps", str(total * 8 / 6e6)],
        env=environment,
        stdout=-1,
        stderr=-1,
        text=True,
    ) as running:
        time.sleep(1.5)
        sas.write_text(server.sas())
        _, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert contents(tmp_path / "there") == set_of(files)


@needs_azurite
@pytest.mark.parametrize(
    ("problem", "said"),
    [
        ("expired", "the SAS expired at "),
        ("no list", "the SAS does not allow listing (sp=r lacks l)"),
        ("no read", "the SAS does not allow reading (sp=l lacks r)"),
        ("cut", "the SAS lacks its field 'sig'; quote the whole text"),
        ("forged", "(403 AuthorizationFailure"),
        ("wrong key", "(403 AuthorizationFailure"),
        ("no container", "(404 ContainerNotFound)"),
        ("no blobs", "holds no objects"),
        ("nobody", "the server refuses it"),
    ],
)
def test_what_keeps_us_out_is_said(
    gyre: Path, tmp_path: Path, blobs: tuple[Azurite, dict[str, bytes]], problem: str, said: str
) -> None:
    server, _ = blobs
    queries = {
        "expired": server.sas(seconds=-60),
        "no list": server.sas(permissions="r"),
        "no read": server.sas(permissions="l"),
        "cut": server.sas().split("&sig=")[0] + "&sig=",
        "forged": server.sas().split("&sig=")[0] + "&sig=" + "A" * 43 + "%3D",
        "no container": server.sas(),
        "no blobs": server.sas(),
    }
    container = "missing" if problem == "no container" else "data"
    path = "nothing" if problem == "no blobs" else "set"
    key = KEY if problem != "wrong key" else KEY[:-8] + "AAAAAAA="
    source = f"{server.endpoint}/{container}/{path}?{queries.get(problem, '')}"
    account = (
        server.connection_string.replace(KEY, key)
        if problem == "wrong key"
        else f"BlobEndpoint={server.endpoint};AccountName={ACCOUNT}"
    )
    done = run_stage(gyre, source, "--to", tmp_path / "there", environment={"AZURE_STORAGE_CONNECTION_STRING": account})
    assert done.returncode in (1, 2)
    assert said in done.stderr, done.stderr
    assert not (tmp_path / "there").exists()
    for secret in (KEY, queries.get(problem, "x=&sig=never").split("sig=")[1] or "never"):
        assert secret not in done.stderr


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, bytes]]]:
    files = {f"set/{name}": body for name, body in some_files(13).items()}
    files |= {"set/a+b c%20.bin": b"a name to encode", "set2/other": b"not of the set"}
    files |= {"set/part_001.bin#1?c%20.bin": b"a name that begins like another"}
    many = {f"many/{i:04d}": b"%d" % i for i in range(1100)}  # Two pages of a listing.
    with moto_s3(tmp_path_factory.mktemp("moto"), {"data": files | many | {"set/": b""}}) as endpoint:
        yield endpoint, files | many


@needs_moto
@pytest.mark.parametrize("keys", ["in the environment", "of a profile", "of nobody"])
@pytest.mark.parametrize("part", ["set", "many/", "set/part_001.bin", "set/part_001.bin#1?c%20.bin"])
def test_a_bucket_is_staged(
    gyre: Path, tmp_path: Path, bucket: tuple[str, dict[str, bytes]], part: str, keys: str
) -> None:
    endpoint, files = bucket
    environment = {"AWS_ENDPOINT_URL": endpoint}
    if keys == "in the environment":
        environment |= {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"}
    elif keys == "of a profile":
        (tmp_path / "keys").write_text("[mine]\naws_access_key_id = me\naws_secret_access_key = secret\n")
        environment |= {"AWS_PROFILE": "mine", "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys")}
    done = run_stage(gyre, f"s3://data/{part}", "--to", tmp_path / "there", environment=environment)
    assert done.returncode == 0, done.stderr
    folder = part.rstrip("/") + "/"
    below = {name.removeprefix(folder): body for name, body in files.items() if name.startswith(folder)}
    assert contents(tmp_path / "there") == (below or {part.removeprefix("set/"): files[part]})


@needs_moto
def test_what_keeps_us_out_of_a_bucket_is_said(
    gyre: Path, tmp_path: Path, bucket: tuple[str, dict[str, bytes]]
) -> None:
    environment = {"AWS_ENDPOINT_URL": bucket[0]}
    for source, said in (
        ("s3://missing/set", "404 NoSuchBucket"),
        ("s3://data/nothing", "s3://data/nothing holds no objects"),
    ):
        done = run_stage(gyre, source, "--to", tmp_path / "there", environment=environment)
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    done = run_stage(gyre, "s3://data/set", "--to", tmp_path / "there", environment={"AWS_PROFILE": "mine"})
    assert (done.returncode, "has no such profile" in done.stderr) == (2, True), done.stderr
