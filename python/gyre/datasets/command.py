"""python -m gyre.datasets."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from gyre.datasets.cifar10 import digits, write_dataset
from gyre.datasets.errors import DatasetError


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def not_negative(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 64:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 2^64 - 1")
    return number


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gyre.datasets",
        description="Write a data set in the layout that the workloads read, without a download.",
        epilog="example: python -m gyre.datasets digits --out out/digits && gyre-cifar10 --data-dir out/digits",
        allow_abbrev=False,
    )
    out = argparse.ArgumentParser(add_help=False)
    out.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to write to; created if needed")
    sets = parser.add_subparsers(dest="name", required=True, metavar="SET")
    sets.add_parser(
        "digits",
        parents=[out],
        help="scikit-learn's 1,797 scanned digits as 32x32x3 images, in CIFAR-10's binary and Python layouts",
        allow_abbrev=False,
    )
    cosmo = sets.add_parser(
        "cosmo",
        parents=[out],
        help="synthetic volumes of dark matter at four redshifts, in CosmoFlow's layout: one TFRecord file each",
        allow_abbrev=False,
    )
    cosmo.add_argument("--train", type=positive, default=64, metavar="N", help="training volumes (default: 64)")
    cosmo.add_argument("--validation", type=positive, default=16, metavar="N", help="validation volumes (default: 16)")
    cosmo.add_argument(
        "--size", type=int, default=128, choices=[16, 32, 64, 128], help="voxels per side (default: 128)"
    )
    cosmo.add_argument(
        "--seed", type=not_negative, default=0, metavar="N", help="of everything that is random (default: 0)"
    )
    cosmo.add_argument("--plain", action="store_true", help="without gzip")
    cosmo.add_argument("--processes", type=positive, default=1, metavar="N", help="parallel writers (default: 1)")
    add_imagenet(sets, out)
    return parser.parse_args(arguments)


def add_imagenet(sets: Any, out: argparse.ArgumentParser) -> None:
    images = sets.add_parser(
        "imagenet",
        parents=[out],
        help="synthetic JPEGs of about ImageNet's size, in TFRecords, Parquet, tar shards, or class folders",
        allow_abbrev=False,
    )
    images.add_argument("--train", type=positive, default=1024, metavar="N", help="training images (default: 1024)")
    images.add_argument(
        "--validation", type=positive, default=128, metavar="N", help="validation images (default: 128)"
    )
    images.add_argument("--classes", type=positive, default=10, metavar="N", help="1 to 1000 (default: 10)")
    images.add_argument("--size", type=positive, default=500, metavar="N", help="long side in pixels (default: 500)")
    layouts = ["tfrecord", "folder", "tar", "parquet"]
    images.add_argument("--layout", choices=layouts, default="tfrecord", help="of the files (default: tfrecord)")
    images.add_argument("--per-shard", type=positive, default=512, metavar="N", help="images per file (default: 512)")
    images.add_argument(
        "--seed", type=not_negative, default=0, metavar="N", help="of everything that is random (default: 0)"
    )


def write_digits(folder: Path) -> str:
    dataset = digits()
    state = "written" if write_dataset(dataset, folder) else "already complete"
    counts = f"{len(dataset.train_images)} training images, {len(dataset.test_images)} test images"
    return f"digits: {counts}; {state} in {folder}"


def write_cosmo(options: argparse.Namespace) -> str:
    from gyre.datasets.cosmo import write_volumes  # noqa: PLC0415 - needs torch and the extension module, digits do not

    volumes = {"train": options.train, "validation": options.validation}
    write_volumes(
        options.out, volumes, options.size, seed=options.seed, plain=options.plain, processes=options.processes
    )
    return f"cosmo: {options.train} training volumes, {options.validation} validation volumes, in {options.out}"


def write_imagenet(options: argparse.Namespace) -> str:
    from gyre.datasets.imagenet import Recipe, write_images  # noqa: PLC0415 - likewise

    images = {"train": options.train, "validation": options.validation}
    recipe = Recipe(options.seed, options.classes, options.size)
    write_images(options.out, images, recipe, layout=options.layout, images_per_shard=options.per_shard)
    return f"imagenet: {options.train} training images, {options.validation} validation images, in {options.out}"


WRITERS = {"digits": lambda options: write_digits(options.out), "cosmo": write_cosmo, "imagenet": write_imagenet}


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    try:
        print(WRITERS[options.name](options))
    except DatasetError as error:
        print(f"gyre.datasets: {error}", file=sys.stderr)
        return 1
    return 0
