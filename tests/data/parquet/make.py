"""Writes the files of this folder, with pyarrow: python make.py. Row i holds values that follow from i alone, and so
does every test that reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
ROWS = 10
GROUP = 4  # Rows of a row group: 4, 4 and 2.
COMPRESSIONS = ("none", "snappy", "gzip", "zstd", "brotli", "lz4")


def kinds() -> pa.Table:
    """A column of each kind that is read."""
    rows = range(ROWS)
    columns: dict[str, pa.Array] = {
        f"{sign}int{bits}": pa.array([i - (0 if sign else 5) for i in rows], f"{sign}int{bits}")
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    }
    columns |= {
        "flag": pa.array([i % 3 == 0 for i in rows]),
        "half": pa.array([np.float16(i - 0.5) for i in rows], pa.float16()),
        "float": pa.array([i + 0.25 for i in rows], pa.float32()),
        "double": pa.array([i + 0.125 for i in rows], pa.float64()),
        "binary": pa.array([bytes([i]) * i for i in rows], pa.binary()),
        "text": pa.array([f"row {i}" for i in rows]),
        "large_text": pa.array([f"row {i}" for i in rows], pa.large_string()),
        "fixed_binary": pa.array([bytes([i, i + 1, i + 2]) for i in rows], pa.binary(3)),
        "choice": pa.array([("red", "green", "blue")[i % 3] for i in rows]).dictionary_encode(),
        "list": pa.array([[i + k for k in range(i % 3)] for i in rows], pa.list_(pa.float32())),
        "large_list": pa.array([[i, -i] for i in rows], pa.large_list(pa.int32())),
        "volume": pa.array([[i, i + 1, i + 2, i + 3] for i in rows], pa.list_(pa.int16(), 4)),
        "matrix": pa.array([[[i, 1], [2, i], [3, 3]] for i in rows], pa.list_(pa.list_(pa.int64()))),
        "flags": pa.array([[i % 2 == 0, i % 2 == 1] for i in rows], pa.list_(pa.bool_())),
        "words": pa.array([[f"{i}", "", "end"] for i in rows], pa.list_(pa.string())),
        "image": pa.array(
            [{"bytes": f"picture {i}".encode(), "path": f"{i}.png"} for i in rows],
            pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        ),
    }
    return pa.table(columns)


def refused() -> pa.Table:
    """What no field can hold."""
    return pa.table(
        {
            "good": pa.array([1, 2, 3]),
            "null": pa.array([1, None, 3]),
            "null_within": pa.array([[1.0], [2.0, None], []], pa.list_(pa.float32())),
            "null_struct": pa.array([{"a": 1}, None, {"a": 3}], pa.struct([("a", pa.int32())])),
            "ragged": pa.array([[[1, 2], [3, 4]], [[1], [2, 3]], []], pa.list_(pa.list_(pa.int32()))),
            "huge": pa.array([1, 2**63, 3], pa.uint64()),
            "when": pa.array([1, 2, 3], pa.timestamp("us")),
            "pairs": pa.array([[("a", 1)], [], []], pa.map_(pa.string(), pa.int32())),
            "structs": pa.array([[{"a": 1}], [], []], pa.list_(pa.struct([("a", pa.int32())]))),
        }
    )


def main() -> None:
    for compression in COMPRESSIONS:
        pq.write_table(kinds(), HERE / f"{compression}.parquet", compression=compression, row_group_size=GROUP)
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(kinds(), HERE / "checked.parquet", row_group_size=GROUP, data_page_version="2.0", **options)
    pq.write_table(refused(), HERE / "refused.parquet", row_group_size=2)
    pq.write_table(kinds().select(["int32", "text"]).slice(0, 0), HERE / "no_rows.parquet")


if __name__ == "__main__":
    main()
