"""torch.utils.data.DataLoader over the row groups of Parquet files, read by pyarrow: like petastorm, without its
package. Each worker process reads row groups in random order and shuffles their rows. Images are decoded by Pillow
to augmented 224 x 224 float32; `--arrays` reads arrays of int16 without conversion."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from gyre.bench.loaders.pillow_images import augmented, keep_socket_names_short, measure


class Rows(IterableDataset[Any]):
    def __init__(self, files: list[Path], arrays: bool) -> None:
        self.arrays = arrays
        self.groups = [(path, group) for path in files for group in range(pq.ParquetFile(path).num_row_groups)]

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number, workers, seed = (worker.id, worker.num_workers, worker.seed) if worker else (0, 1, torch.initial_seed())
        # The same order in all workers: their seeds differ by their numbers.
        order = torch.randperm(len(self.groups), generator=torch.Generator().manual_seed(seed - number))
        for place in order[number::workers].tolist():
            path, group = self.groups[place]
            columns = ["x"] if self.arrays else ["image.bytes", "label"]
            table = pq.ParquetFile(path).read_row_group(group, columns=columns, use_threads=False)
            yield from self.arrays_of(table) if self.arrays else self.images_of(table)

    def arrays_of(self, table: Any) -> Iterator[torch.Tensor]:
        column = table.column("x").combine_chunks()
        values = column.values.to_numpy().reshape(len(column), -1)
        for row in torch.randperm(len(column)).tolist():
            yield torch.from_numpy(values[row])

    def images_of(self, table: Any) -> Iterator[tuple[torch.Tensor, int]]:
        images, labels = table.column("image"), table.column("label")
        for row in torch.randperm(len(labels)).tolist():
            with Image.open(io.BytesIO(images[row].as_py()["bytes"])) as opened:
                yield augmented(opened), labels[row].as_py()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arrays", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_socket_names_short()
    loader = DataLoader(
        Rows(sorted(options.folder.glob("train-*.parquet")), options.arrays),
        batch_size=options.batch,
        num_workers=options.threads,
        drop_last=True,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    print(json.dumps({"per_second": measure(loader, options.batch, options.seconds)}))


if __name__ == "__main__":
    main()
