"""Images in gyre.data.Loader as training scripts use them, beside what Pillow makes of the same files."""

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from gyre.errors import CorruptDataError, InvalidArgumentError
from PIL import Image as Pillow

from gyre.data import IMAGENET_MEAN, IMAGENET_STD, Loader, image, ints, write_tfrecords

KEYS = {"label": ints(key="image/class/label", offset=-1)}


def picture(number: int, width: int = 500, height: int = 375) -> Pillow.Image:
    """Smooth, so that a JPEG keeps it, and unlike the other ones."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 120 * np.sin((x * (c + 1) + y * (number + 2)) / 40) for c in range(3)]
    return Pillow.fromarray(np.stack(waves, -1).astype(np.uint8))


def encoded(of: Pillow.Image, kind: str = "JPEG", **options: int) -> bytes:
    memory = io.BytesIO()
    of.save(memory, kind, **options)
    return memory.getvalue()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for shard in range(2):
        examples = [
            {"image/encoded": encoded(picture(number), quality=92), "image/class/label": number + 1}
            for number in range(shard * 6, shard * 6 + 6)
        ]
        write_tfrecords(tmp_path / f"train-{shard:05}-of-00002", examples)
    return tmp_path


def normalised(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    return ((values / 255 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_STD)).transpose(2, 0, 1)


def test_evaluation_images_are_those_of_pillow_and_torchvision(files: Path) -> None:
    fields = {"image": image(224, augment=False, resize=256, key="image/encoded"), **KEYS}
    batch = next(iter(Loader(files, fields, batch_size=12, shuffle=False)))
    assert batch["label"].tolist() == list(range(12))
    assert batch["image"].shape == (12, 3, 224, 224)
    for number in range(12):
        with Pillow.open(io.BytesIO(encoded(picture(number), quality=92))) as whole:
            small = whole.resize((341, 256), Pillow.Resampling.BILINEAR).crop((58, 16, 58 + 224, 16 + 224))
        expected = normalised(np.asarray(small))
        # One of 255, divided by the smallest standard deviation.
        assert np.abs(batch["image"][number].numpy() - expected).max() <= 1.01 / 255 / 0.224


def test_images_of_half_the_size_come_near_those_of_the_whole(tmp_path: Path) -> None:
    write_tfrecords(tmp_path / "one", [{"x": encoded(picture(1, 1200, 900), quality=95)}])
    values = {}
    for reduced in (True, False):
        fields = {"x": image(224, augment=False, resize=256, dtype="uint8", reduced_decode=reduced)}
        values[reduced] = next(iter(Loader(tmp_path, fields, batch_size=1)))["x"].int()
    difference = (values[True] - values[False]).abs()
    assert 0 < difference.max() <= 12
    assert difference.float().mean() < 2


def test_types_layouts_and_sizes_are_as_asked_for(files: Path) -> None:
    fields = {
        "a": image((32, 48), augment=False, resize=55, key="image/encoded", layout="HWC", dtype="uint8"),
        "b": image(
            (32, 48), augment=False, resize=55, key="image/encoded", dtype="bfloat16", mean=(0, 0, 0), std=(1, 1, 1)
        ),
    }
    batch = next(iter(Loader(files, fields, batch_size=4)))
    assert (batch["a"].shape, batch["a"].dtype) == ((4, 32, 48, 3), torch.uint8)
    assert (batch["b"].shape, batch["b"].dtype) == ((4, 3, 32, 48), torch.bfloat16)
    torch.testing.assert_close(batch["a"].permute(0, 3, 1, 2) / 255, batch["b"].float(), atol=0.005, rtol=0)


def test_random_choices_follow_from_seed_epoch_and_sample_alone(files: Path) -> None:
    def epoch(number: int, **options: int) -> dict[int, torch.Tensor]:
        fields = {"image": image(32, augment=True, key="image/encoded"), **KEYS}
        loader = Loader(files, fields, seed=5, drop_last=True, **options)  # type: ignore[arg-type]
        loader.set_epoch(number)
        found = {}
        for batch in loader:
            found.update(zip(batch["label"].tolist(), batch["image"].clone(), strict=True))
        return found

    first = epoch(0, batch_size=4, threads=1)
    again = epoch(0, batch_size=3, threads=4)
    parts = [epoch(0, batch_size=2, rank=rank, world_size=2) for rank in (0, 1)]
    assert len(first) == 12
    for label, tensor in first.items():
        assert torch.equal(tensor, again[label])
        assert torch.equal(tensor, {**parts[0], **parts[1]}[label])
        assert not torch.equal(tensor, epoch(1, batch_size=12)[label])


def test_png_and_gray_images_are_read_like_others(tmp_path: Path) -> None:
    exact = picture(3, 64, 64)
    examples = [
        {"x": encoded(exact, "PNG")},
        {"x": encoded(exact.convert("L"), "PNG")},
        {"x": encoded(exact.convert("P"), "PNG")},
        {"x": encoded(exact.convert("L"), quality=95)},
        {"x": encoded(exact.convert("CMYK"), quality=95)},
    ]
    write_tfrecords(tmp_path / "png", examples)
    fields = {"x": image(64, augment=False, resize=64, dtype="uint8", layout="HWC")}
    batch = next(iter(Loader(tmp_path, fields, batch_size=5, shuffle=False)))
    for number, example in enumerate(examples):
        with Pillow.open(io.BytesIO(example["x"])) as opened:
            expected = np.asarray(opened.convert("RGB")).astype(int)
        assert np.abs(batch["x"][number].numpy() - expected).max() <= 2, number


def test_masks_are_resampled_to_the_nearest_pixel_as_by_pillow(tmp_path: Path) -> None:
    """No label appears that the mask does not have, and an image's mask is cropped and mirrored with it."""
    random = np.random.default_rng(0)
    mask = random.choice(np.array([0, 20, 255], np.uint8), (61, 83, 1)).repeat(3, 2)
    write_tfrecords(tmp_path / "masks", [{"x": encoded(Pillow.fromarray(mask), "PNG")}])
    fields = {
        "small": image(32, augment=False, resize=40, resample="nearest", dtype="uint8", layout="HWC", key="x"),
        "large": image(90, augment=False, resize=122, resample="nearest", dtype="uint8", layout="HWC", key="x"),
        "drawn": image(32, augment=True, resample="nearest", dtype="uint8", layout="HWC", key="x"),
    }
    batch = next(iter(Loader(tmp_path, fields, batch_size=1, output="numpy")))
    whole = Pillow.fromarray(mask)
    for name, size, resize in (("small", 32, 40), ("large", 90, 122)):
        width = resize * 83 // 61
        left, top = round((width - size) / 2), round((resize - size) / 2)
        resized = whole.resize((width, resize), Pillow.Resampling.NEAREST)
        assert np.array_equal(batch[name][0], np.asarray(resized)[top : top + size, left : left + size]), name
    assert set(np.unique(batch["drawn"])) <= {0, 20, 255}
    with pytest.raises(InvalidArgumentError, match="resample 'cubic' is none of 'bilinear', 'nearest'"):
        Loader(tmp_path, {"x": image(32, augment=False, resample="cubic")}, batch_size=1)


def test_without_resize_the_middle_is_cut_out_as_it_is(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (41, 32, 3), np.uint8)
    write_tfrecords(tmp_path / "one", [{"x": encoded(Pillow.fromarray(pixels), "PNG")}])
    fields = {"x": image((30, 32), augment=False, dtype="uint8", layout="HWC")}
    (batch,) = Loader(tmp_path, fields, batch_size=1, output="numpy")
    assert np.array_equal(batch["x"][0], pixels[6:36])  # 5.5 rounds to even, as torchvision's CenterCrop does.
    with pytest.raises(InvalidArgumentError, match=r"image of 32 x 41 pixels is smaller than the 33 x 33 .* resize=33"):
        Loader(tmp_path, {"x": image(33, augment=False)}, batch_size=1)


def test_a_damaged_image_is_named_with_file_record_and_place(files: Path) -> None:
    whole = encoded(picture(1))
    write_tfrecords(files / "train-00002", [{"image/encoded": whole[: len(whole) // 2], "image/class/label": 1}])
    fields = {"image": image(32, augment=False, key="image/encoded")}
    with pytest.raises(CorruptDataError, match=r"train-00002, record 0, .* byte 12: field 'image': .*end too early"):
        list(Loader(files, fields, batch_size=1, shuffle=False))
    loader = Loader(files, fields, batch_size=13, damaged="replace")
    assert [batch["image"].shape[0] for batch in loader] == [13]
    assert loader.ledger().damaged == 1
    assert "1 damaged samples were replaced, first" in str(loader.ledger())
    assert "train-00002, record 0" in loader.ledger().first_damage


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "0 is not a number of pixels"),
        ({"resize": 100}, "resized to 100"),
        ({"layout": "WHC"}, "neither 'CHW' nor 'HWC'"),
        ({"dtype": "int64"}, "cannot become int64"),
        ({"augment": True, "area": (0.5, 0.1)}, "area from 0.5 to 0.1"),
        ({"std": (1, 0, 1)}, "standard deviation 0"),
        ({"mean": (1, 2)}, "not three numbers"),
    ],
)
def test_options_that_cannot_be_are_one_error_at_once(files: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Loader(files, {"image/encoded": image(**{"augment": False, **options})}, batch_size=1)  # type: ignore[arg-type]
