"""What a run finds in its folder: another run that is still going on, what an earlier one has left, or the checkpoints
of another program."""

from __future__ import annotations

import copy
import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_job import StartJob, wait_until
from training_programs import Program, checkpoints, make, metadata_of, program_called

NAMES = ("gyre-cifar10", "gyre-cosmoflow", "gyre-resnet50")


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_has_one_run_at_a_time(name: str, start_job: StartJob, data: Path, tmp_path: Path) -> None:
    """Two runs replaced each other's checkpoints, and both ended with success."""
    program = program_called(name, data, tmp_path)
    run = tmp_path / "run"
    first = start_job("-v", "-n", "2", "--", *program.command(3, run, epochs=1000), timeout=240)
    wait_until("a checkpoint is written", lambda: bool(checkpoints(run)))
    pids = first.rank_pids(2)
    for options in ((), ("--resume",), ("--resume-changed",)):
        second = program.train(1, 6, run, *options)
        assert second.returncode == 1
        refusal = f"{run / 'checkpoints'} is in use by another run (process {pids[0]} on {socket.gethostname()})"
        assert second.stderr.splitlines() == [
            f"{name}: {refusal}: wait until that has ended, or choose another folder with --output-dir"
        ]
        assert "samples epoch" not in second.stdout
    assert first.process.poll() is None
    assert len(list((run / "tensorboard").iterdir())) == 1
    # A kill -9 ends the lock.
    os.kill(pids[0], signal.SIGKILL)
    first.wait()
    done = int(checkpoints(run)[-1].stem.rpartition("-")[2]) // program.samples
    resumed = program.train(2, 3, run, "--resume", epochs=done + 1)
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed after" in resumed.stdout
    assert not (run / "checkpoints" / "run.lock").exists()


def test_the_folder_of_a_worker_of_an_earlier_run_is_not_taken_for_the_new_ones(data: Path, tmp_path: Path) -> None:
    program = program_called("gyre-cifar10", data, tmp_path)
    run = tmp_path / "run"
    way = ("--consistency", "local:2")
    assert program.train(2, 50, run, *way, epochs=1).returncode == 0
    for file in checkpoints(run):
        file.unlink()
    worker = run / "checkpoints" / "worker-1"
    for options in ((), ("--resume",)):
        refused = program.train(2, 50, run, *way, *options, epochs=1)
        assert refused.returncode == 1
        assert (
            f"gyre-cifar10: {worker} is the folder of a worker of an earlier run, whose checkpoints are gone: move it "
            "away, or choose another folder with --output-dir"
        ) in refused.stderr
    shutil.rmtree(worker)
    assert program.train(2, 50, run, *way, epochs=1).returncode == 0


def test_what_a_killed_run_was_writing_is_removed_and_nothing_else(data: Path, tmp_path: Path) -> None:
    """Each kill in a write left a file as large as a checkpoint for ever."""
    program = program_called("gyre-cifar10", data, tmp_path)
    run = tmp_path / "run"
    way = ("--consistency", "local:2")
    assert program.train(2, 50, run, *way, epochs=1).returncode == 0
    folder = run / "checkpoints"
    drafts = [
        folder / f"{checkpoints(run)[-1].name}.0a1b.tmp",
        folder / "best-accuracy.safetensors.2c3d.tmp",
        folder / "worker-1" / f"{checkpoints(run)[-1].name}.4e5f.tmp",
    ]
    others = [folder / "notes.tmp", folder / "checkpoint-of-mine.txt"]
    for file in (*drafts, *others):
        file.write_bytes(b"cut")
    resumed = program.train(2, 50, run, *way, "--resume", epochs=2)
    assert resumed.returncode == 0, resumed.stderr
    assert [file for file in drafts if file.exists()] == []
    assert [file for file in others if not file.exists()] == []


def test_a_checkpoint_of_another_program_is_refused_by_its_name(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert program_called("gyre-cifar10", data, tmp_path).train(1, 100, run, epochs=1).returncode == 0
    newest = checkpoints(run)[-1]
    other = program_called("gyre-resnet50", data, tmp_path)
    for option in ("--resume", "--resume-changed"):
        refused = other.train(1, 32, run, option, epochs=2)
        assert refused.returncode == 1
        assert refused.stderr.splitlines() == [
            f"gyre-resnet50: cannot resume from {newest}: this is a checkpoint of gyre-cifar10: choose another folder "
            "with --output-dir"
        ]


def test_another_network_is_refused_before_anything_is_promised(data: Path, tmp_path: Path) -> None:
    """It said "continues although …", and then that a tensor has another shape; or trained a part of the network."""
    small = program_called("gyre-resnet50", data, tmp_path)
    more_classes = with_option(small, "--classes", 5)
    deeper = with_option(small, "--depth", 26)
    for program in (small, deeper):
        assert program.train(1, 32, tmp_path / str(program.options), epochs=1).returncode == 0
    for before, after, reason in (
        (small, more_classes, "tensor fc.weight is float32 [4, 2048] in the checkpoint and float32 [5, 2048] in this"),
        (small, deeper, "the checkpoint has no tensor layer1.1."),
        (deeper, small, "this network has no tensor layer1.1."),
    ):
        for options in (("--resume",), ("--resume-changed", "--seed", 7)):
            refused = after.train(1, 32, tmp_path / str(before.options), *options)
            assert refused.returncode == 1
            (line,) = refused.stderr.splitlines()
            assert reason in line
            assert "before the checkpoint and is" in line
            assert "No run can go on with another network" in line
            assert "continues" not in line
            assert "--resume-changed" not in line


def with_option(program: Program, name: str, value: object) -> Program:
    options = list(program.options)
    options[options.index(name) + 1] = value
    changed = copy.copy(program)
    changed.options = tuple(options)
    return changed


def test_a_data_folder_that_is_a_file_is_called_one(data: Path, tmp_path: Path) -> None:
    file = data / "cifar-10-batches-bin" / "data_batch_1.bin"
    for name in NAMES:
        program = program_called(name, data, tmp_path)
        program.data = file
        refused = program.train(1, 32, tmp_path / "run")
        assert refused.returncode == 1
        expected = f"{name}: --data-dir is {file}, which is a file: give the folder that holds the data"
        assert refused.stderr.splitlines() == [expected]


def metrics_of(output: str) -> dict[int, str]:
    """The metrics of each epoch that has a line."""
    lines = re.findall(r"^(?:\[0\] )?epoch (\d+)/\d+  (.*?test accuracy [\d.]+)", output, re.MULTILINE)
    assert len(lines) == len(dict(lines)), "an epoch has two lines"
    return {int(epoch): metrics for epoch, metrics in lines}


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_evaluation_that_was_interrupted_is_made_up_for(ranks: int, data: Path, tmp_path: Path) -> None:
    """The epoch's checkpoint is written before: its line, its curves and whether it is the best were missing."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415 - slow to import

    program = program_called("gyre-cifar10", data, tmp_path)
    keeping = ("--keep-best", "accuracy")
    whole = program.train(ranks, 50, tmp_path / "whole", *keeping)
    assert whole.returncode == 0, whole.stderr
    run = tmp_path / "run"
    tested = data / "cifar-10-batches-bin" / "test_batch.bin"
    intact = tested.read_bytes()
    label = len(intact) - 1 - 3 * 32 * 32  # Of the last image.
    tested.write_bytes(intact[:label] + b"\x63" + intact[label + 1 :])  # There is no such class: the evaluation fails.
    failed = program.train(ranks, 50, run, *keeping)
    assert failed.returncode == 1
    assert [metadata_of(path)["epoch"] for path in checkpoints(run)] == ["1"]
    assert not metrics_of(failed.stdout)
    tested.write_bytes(intact)

    resumed = program.train(ranks, 50, run, *keeping, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert metrics_of(resumed.stdout) == metrics_of(whole.stdout)
    for best in ("epoch", "best/accuracy"):
        name = "checkpoints/best-accuracy.safetensors"
        assert metadata_of(run / name)[best] == metadata_of(tmp_path / "whole" / name)[best]
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    for curve in ("train/loss", "test/loss"):
        assert [event.step for event in events.Scalars(curve)] == [1, 2]
    # What was reported is not reported again.
    again = program.train(ranks, 50, run, *keeping, "--resume", epochs=3)
    assert again.returncode == 0, again.stderr
    assert set(metrics_of(again.stdout)) == {3}


def exchange_contents(program: Program) -> None:
    """Other contents under the names of before."""
    if program.name == "gyre-cifar10":  # Another label.
        batch = program.data / "cifar-10-batches-bin" / "data_batch_4.bin"
        content = bytearray(batch.read_bytes())
        content[7 * (1 + 3 * 32 * 32)] ^= 1
        batch.write_bytes(content)
        return
    if program.name == "gyre-cosmoflow":  # Volumes and targets of two files in each other's place.
        one, other, *_ = sorted((program.data / "train").iterdir())
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
        return
    shard = max(program.data.glob("train-*"))  # The last two records in each other's place.
    records = list(framed_records(shard))
    records[-2:] = records[:-3:-1]
    shard.write_bytes(b"".join(records))


def framed_records(path: Path) -> Iterator[bytes]:
    """Of a TFRecord file: length, its checksum, payload, its checksum."""
    content = path.read_bytes()
    while content:
        size = 8 + 4 + int.from_bytes(content[:8], "little") + 4
        yield content[:size]
        content = content[size:]


@pytest.mark.parametrize("name", NAMES)
def test_other_contents_under_the_same_names_are_not_the_files_of_the_run(
    name: str, data: Path, tmp_path: Path
) -> None:
    """A run went on with other labels and other images, because their files were called as before."""
    program = program_called(name, data, tmp_path)
    run = tmp_path / "run"
    assert program.train(1, 24, run, epochs=1).returncode == 0
    # A copy has other times of change, and lies elsewhere.
    copied = copy.copy(program)
    copied.data = tmp_path / "copy"
    shutil.copytree(program.data, copied.data, copy_function=shutil.copy)
    for file in copied.data.rglob("*"):
        os.utime(file, (1e9, 1e9))
    resumed = copied.train(1, 24, run, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "digest" not in resumed.stderr
    exchange_contents(program)
    refused = program.train(1, 24, run, "--resume", epochs=3)
    assert refused.returncode == 1
    differ = "sizes" if name == "gyre-cosmoflow" else "contents"  # Its files are compressed.
    assert f"the digest of the training files' {differ} was" in refused.stderr
    assert "names was" not in refused.stderr
    accepted = program.train(1, 24, run, "--resume-changed", epochs=3)
    assert accepted.returncode == 0, accepted.stderr
    assert "begins again, with the present samples" in accepted.stderr


def test_an_image_in_the_place_of_another_one_is_noticed_in_folders(data: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    words = ("imagenet", "--out", images, "--layout", "folder", "--size", 32, "--classes", 2, "--train", 24)
    make(*words, "--validation", 4)
    program = program_called("gyre-cifar10", data, tmp_path)
    program.data = images
    run = tmp_path / "run"
    assert program.train(1, 24, run, epochs=1).returncode == 0
    one, other = (next(iter(sorted(folder.iterdir()))) for folder in sorted((images / "train").iterdir()))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    refused = program.train(1, 24, run, "--resume")
    assert refused.returncode == 1
    assert re.search("the digest of the training files' (sizes|contents) was", refused.stderr)
