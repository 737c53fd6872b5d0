"""Every kind of JPEG and PNG that people have in their folders becomes the pixels that docs/guide/data.md says: those
of Pillow's `convert("RGB")`, except where Pillow clips 16-bit greys. Images of other kinds are refused by name."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from gyre.errors import Error, UnsupportedError
from PIL import Image as Pillow

from gyre.data import Loader, image, ints

SIDE = 48
Pixels = npt.NDArray[np.uint8]


def picture() -> Pixels:
    """Smooth, so that a JPEG keeps it."""
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    return np.stack([127 + 120 * np.sin((x * (c + 1) + y * 2) / 20) for c in range(3)], -1).astype(np.uint8)


def saved(of: Pillow.Image, kind: str, **options: object) -> bytes:
    memory = io.BytesIO()
    of.save(memory, kind, **options)
    return memory.getvalue()


def colour() -> Pillow.Image:
    return Pillow.fromarray(picture())


def cmyk() -> Pillow.Image:
    return Pillow.fromarray(np.dstack([picture(), np.full((SIDE, SIDE), 60, np.uint8)]), "CMYK")


def transparent_palette() -> bytes:
    return saved(colour().quantize(16), "PNG", transparency=3)


def turned_by_a_tag() -> bytes:
    exif = Pillow.Exif()
    exif[0x0112] = 6  # Orientation: to be turned by 90 degrees.
    return saved(colour(), "JPEG", quality=95, exif=exif)


def png_of_16_bits(values: npt.NDArray[np.uint16]) -> bytes:
    """Pillow writes no colour of 16 bits."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def wide() -> npt.NDArray[np.uint16]:
    return picture().astype(np.uint16) * 257 + 100


def loaded(stored: bytes, folder: Path, ending: str) -> Pixels:
    (folder / f"one.{ending}").write_bytes(stored)
    field = image(SIDE, augment=False, dtype="uint8", layout="HWC")
    batch = next(iter(Loader(folder, {"image": field}, batch_size=1, output="numpy")))
    pixels: Pixels = batch["image"][0]
    return pixels


# The file, its ending, and how far a value may be from Pillow's.
SAME_AS_PILLOW: dict[str, tuple[Callable[[], bytes], str, int]] = {
    "JPEG": (lambda: saved(colour(), "JPEG", quality=95), "jpg", 0),
    "JPEG, progressive": (lambda: saved(colour(), "JPEG", quality=95, progressive=True), "jpeg", 0),
    "JPEG, grey": (lambda: saved(colour().convert("L"), "JPEG", quality=95), "jpg", 0),
    "JPEG, CMYK": (lambda: saved(cmyk(), "JPEG", quality=95), "JPG", 1),
    "JPEG, orientation tag": (turned_by_a_tag, "jpg", 0),
    "PNG": (lambda: saved(colour(), "PNG"), "png", 0),
    "PNG, grey": (lambda: saved(colour().convert("L"), "PNG"), "png", 0),
    "PNG, grey and alpha": (lambda: saved(colour().convert("LA"), "PNG"), "png", 0),
    "PNG, black and white": (lambda: saved(colour().convert("1"), "PNG"), "png", 0),
    "PNG, palette": (lambda: saved(colour().quantize(200), "PNG"), "png", 0),
    "PNG, palette of 16 colours": (lambda: saved(colour().quantize(16), "PNG", bits=4), "png", 0),
    "PNG, transparent palette": (transparent_palette, "png", 0),
    "PNG, alpha": (lambda: saved(colour().convert("RGBA"), "PNG"), "png", 0),
    "PNG, colour of 16 bits": (lambda: png_of_16_bits(wide().reshape(SIDE, -1)), "png", 1),
}


@pytest.mark.parametrize("kind", SAME_AS_PILLOW)
def test_an_image_is_the_same_as_pillows(kind: str, tmp_path: Path) -> None:
    make, ending, most = SAME_AS_PILLOW[kind]
    stored = make()
    with Pillow.open(io.BytesIO(stored)) as opened:
        expected = np.asarray(opened.convert("RGB")).astype(int)
    difference = np.abs(loaded(stored, tmp_path, ending).astype(int) - expected)
    assert difference.max() <= most


def test_grey_of_16_bits_keeps_its_range_where_pillow_clips_it(tmp_path: Path) -> None:
    values = np.arange(SIDE * SIDE, dtype=np.uint16).reshape(SIDE, SIDE) * 28
    stored = saved(Pillow.fromarray(values), "PNG")
    with Pillow.open(io.BytesIO(stored)) as opened:
        assert np.asarray(opened.convert("RGB")).min(initial=255, where=np.dstack([values] * 3) > 255) == 255
    expected = np.rint(values / 257).astype(int)
    difference = np.abs(loaded(stored, tmp_path, "png").astype(int) - expected[:, :, None])
    assert difference.max() <= 1


@pytest.mark.parametrize("kind", ["WEBP", "TIFF", "GIF", "BMP", "PPM"])
def test_images_of_other_kinds_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(saved(colour(), "PNG"))
    other = tmp_path / "cat" / f"2.{kind.lower()}"
    other.write_bytes(saved(colour(), kind))
    fields = {"image": image(SIDE, augment=False), "label": ints()}
    with pytest.raises(UnsupportedError, match=rf"cat/2.{kind.lower()} is a {kind}".replace("WEBP", "WebP")):
        Loader(tmp_path, fields, batch_size=1)
    other.rename(tmp_path / "cat" / "2.jpg")  # A name that lies.
    with pytest.raises(Error, match=r"cat/2.jpg: field 'image': the \d+ bytes are neither a JPEG nor a PNG image"):
        for _ in Loader(tmp_path, fields, batch_size=2, shuffle=False):
            pass
