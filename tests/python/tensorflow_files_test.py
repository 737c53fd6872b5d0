"""Files of TensorFlow are read here, and ours by others. Those in tests/data/tensorflow were written by TensorFlow
(make.py beside them), which has also read `ours.tfrecord*` and said what is in them (`ours.jsonl`). What is written
here must be those files; the TensorFlow of .venv/tensorflow (or of the Python that GYRE_TEST_TENSORFLOW names) reads it
as well. So do TensorBoard's reader of records, which compares checksums, and Google's protobuf."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

from gyre.data import Loader, floats, ints, raw, write_tfrecords

FILES = Path(__file__).parent.parent / "data" / "tensorflow"
TENSORFLOW = os.environ.get("GYRE_TEST_TENSORFLOW") or FILES.parents[2] / ".venv" / "tensorflow" / "bin" / "python"
# As in make.py.
RAW = [bytes(range(256)), bytes(256), b"\x1f\x8b" * 128]
FLOATS = np.array([[0.1, -2.5, 3e38], [1e-45, 0.0, -0.0], [np.inf, 1 / 3, 7.0]], dtype=np.float32)
INTS = np.array([[0, -1, 2**63 - 1, -(2**63)], [127, 128, 300, -300], [1, 2, 3, 4]])


@pytest.mark.parametrize("name", ["plain", "gzip", "zlib"])
def test_what_tensorflow_has_written_is_read_to_the_last_bit(name: str) -> None:
    fields = {"raw": raw("uint8", 256), "floats": floats(3), "ints": ints(4)}
    (batch,) = Loader(str(FILES / f"{name}.tfrecord"), fields, batch_size=3, shuffle=False)
    assert [bytes(np.asarray(one)) for one in batch["raw"]] == RAW
    assert np.asarray(batch["floats"]).tobytes() == FLOATS.tobytes()
    assert np.array_equal(np.asarray(batch["ints"]), INTS)


ENDINGS = {None: "", "gzip": ".gz", "zlib": ".zlib"}
UNPACK = {None: bytes, "gzip": gzip.decompress, "zlib": zlib.decompress}


def write_ours(path: Path, compression: str | None) -> None:
    rows = ({"raw": RAW[i], "floats": FLOATS[i], "ints": INTS[i]} for i in range(3))
    write_tfrecords(path, rows, compression=compression)


def check_said(lines: list[str]) -> None:
    """What make.py prints of a file of ours."""
    assert len(lines) == 3
    for i, line in enumerate(lines):
        record = json.loads(line)
        assert [base64.b64decode(one) for one in record["raw"]] == [RAW[i]]
        assert np.array(record["floats"], dtype=np.float32).tobytes() == FLOATS[i].tobytes()
        assert record["ints"] == INTS[i].tolist()


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_what_is_written_here_is_what_tensorflow_has_read(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / f"ours.tfrecord{ENDINGS[compression]}"
    write_ours(path, compression)
    # Compressed bytes depend on libdeflate's version, their contents do not.
    golden = (FILES / path.name).read_bytes()
    assert UNPACK[compression](path.read_bytes()) == UNPACK[compression](golden)
    lines = (FILES / "ours.jsonl").read_text().splitlines()
    assert len(lines) == 3 * len(ENDINGS)
    first = 3 * list(ENDINGS).index(compression)
    check_said(lines[first : first + 3])
    command = [TENSORFLOW, FILES / "make.py", path]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    check_said(said.stdout.splitlines())


def example_class() -> type:
    """tf.train.Example, from its published field numbers."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    kinds = {"BytesList": "TYPE_BYTES", "FloatList": "TYPE_FLOAT", "Int64List": "TYPE_INT64"}

    def field(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str, **more: object) -> None:
        message.field.add(
            name=name, number=number, type=getattr(descriptor_pb2.FieldDescriptorProto, kind),
            label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL, **more,
        )  # fmt: skip

    for name, kind in kinds.items():
        message = file.message_type.add(name=name)
        field(message, "value", 1, kind)
        message.field[0].label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(kinds, 1):
        field(feature, name.lower(), number, "TYPE_MESSAGE", type_name=f".t.{name}", oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    field(entry, "key", 1, "TYPE_STRING")
    field(entry, "value", 2, "TYPE_MESSAGE", type_name=".t.Feature")
    field(features, "feature", 1, "TYPE_MESSAGE", type_name=".t.Features.FeatureEntry")
    features.field[0].label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
    example = file.message_type.add(name="Example")
    field(example, "features", 1, "TYPE_MESSAGE", type_name=".t.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_what_is_written_here_others_read_to_the_last_bit(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / "ours.tfrecord"
    write_ours(path, compression)
    path.write_bytes(UNPACK[compression](path.read_bytes()))
    reader = PyRecordReader_New(str(path))
    parse = example_class()
    for i in range(3):
        reader.GetNext()
        feature = parse.FromString(reader.record()).features.feature  # type: ignore[attr-defined]
        assert list(feature["raw"].byteslist.value) == [RAW[i]]
        assert np.array(feature["floats"].floatlist.value, dtype=np.float32).tobytes() == FLOATS[i].tobytes()
        assert list(feature["ints"].int64list.value) == INTS[i].tolist()
    with pytest.raises(Exception, match="No more events"):
        reader.GetNext()
