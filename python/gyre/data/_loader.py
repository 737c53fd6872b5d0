"""The Python loader, over gyre::data::Loader."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import operator
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

from gyre.core import _core
from gyre.data._fields import Field, as_tuple
from gyre.data._ledger import StallLedger
from gyre.errors import InvalidArgumentError

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_ORDERS = {True: "full", False: "none", "full": "full", "block": "block", "none": "none"}
_WORDS = {"files": "other files, of checksum", "shuffle": "shuffle"}
_POSITION = ("epoch", "step")
_NUMPY_HAS_NOT = "bfloat16"
_TOO_LARGE = 1 << 63


class LoaderState(TypedDict):
    """Where a run stands in its data, and what the order of the samples depends on."""

    epoch: int
    step: int
    seed: int
    samples: int
    global_batch: int
    shuffle: str
    streams: int
    open_blocks: int
    files: str
    """A checksum of the files' names (without folders) and of the beginning of their contents."""


class Batch(dict[str, Any]):
    """The fields of a batch by their names: tensors whose first dimension is the batch size.

    counted: how many of the samples count, the first ones; fewer than there are if the epoch's last batch is filled up,
        or samples were replaced by others (`damaged="replace"`).
    counted_globally: `counted` of all ranks together. With `damaged="replace"` and several ranks no rank knows it,
        because each one replaces on its own, and InvalidArgumentError says so: add up `counted` over the ranks.
    epoch, step: which batch this is.

    The tensors use the loader's memory, which it reclaims when the last of them is freed; `clone()` tensors that you
    keep.

    `to()`, which Lightning and Accelerate call, keeps all of this. A copy made from the fields alone lacks it: its
    `counted`, `counted_globally`, `epoch` and `step` raise AttributeError.
    """

    counted: int
    counted_globally: int
    epoch: int
    step: int

    def __init__(
        self,
        fields: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        *,
        counted: int | None = None,
        counted_globally: int | None = None,
        epoch: int | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(fields)
        known = {"counted": counted, "counted_globally": counted_globally, "epoch": epoch, "step": step}
        self.__dict__.update({name: value for name, value in known.items() if value is not None})

    def to(self, device: Any, non_blocking: bool = False) -> Batch:
        """The batch with its tensors on `device`; tensors that are there already are not copied."""
        fields = {
            name: value.to(device, non_blocking=non_blocking) if hasattr(value, "is_cpu") else value
            for name, value in self.items()
        }
        moved = Batch(fields)
        moved.__dict__.update(self.__dict__)
        return moved

    def __getattr__(self, name: str) -> Any:
        """Of what is not there."""
        if name == "counted_globally" and self.__dict__.get("_of_one_rank"):
            raise InvalidArgumentError(
                "with damaged='replace' no rank knows how many samples the other ranks have replaced, so the loader "
                "cannot say how many count globally; add up `counted` over the ranks (all_reduce)"
            )
        raise AttributeError(f"this batch has no {name!r}")


class Loader:
    """An iterable of batches over files of samples; each `for` loop over it is one epoch.

    files: a pattern ("train/*.tfrecord*"), a folder, or a list of paths; the files of patterns and folders are sorted
        by name, and hidden ones are left out. Also URLs of object stores and web servers ("az://data/train",
        "s3://bucket/set/*.tfrecord", "https://host/set/"), which are read in ranges, ahead of the training loop;
        credentials come from the environment, as for `gyre stage`. A folder with folders of images is an image folder,
        with one folder per class, whatever lies beside them; `left_out` says what that is.
    format: "tfrecord" (of tf.train.Examples; gzip and zlib are detected), "parquet", "folder", "images" (without
        labels: image files, and folders of them at any depth), "tar" (webdataset's layout), "idx" (MNIST's), "cifar10";
        "auto" detects the format from the content.
    classes: of an image folder: the names of the classes by label, those that a model was trained with, for example.
        Folders of other names get the labels behind them. By default the classes are the folders, sorted by name.
    fields: by the names of the features, or of your own choice with `key=`: see `image`, `raw`, `floats` and `ints`.
    batch_size: samples per rank and batch.
    shuffle: True ("full": any sample anywhere), "block" (files, or parts of them, in random order, some of which are
        open at a time and mixed, and the samples within each; for compressed files that hold many samples; of Parquet
        files their row groups), or False.
    seed: of the shuffle.
    open_blocks: of `shuffle="block"`: how many files, parts or row groups each stream mixes; default: as many as
        256 MB, or a quarter of `memory_budget` if that is less, hold for all streams together, from 1 to 16. At most
        64. The same on all ranks: give it where their budgets differ.
    streams: of `shuffle="block"`: into how many equal parts the files are divided, each mixed by itself, with blocks of
        its own open; the samples of a global batch come from the parts in turn. Each rank takes its own parts where
        one number divides the other, and `streams` the global batch: with streams=4 each of 4 ranks reads a quarter of
        the files. The order depends on it, and not on the number of ranks.
    drop_last: drop the samples that do not fill the last global batch. Otherwise the last batch is shorter; with
        several ranks it is filled up from the start of the order, and `batch.counted` says how many count, which can
        be 0. Every rank has the same number of batches either way.
    rank, world_size: default to those of torch.distributed, or of Gyre after an init(), if one of them is initialised,
        else to what the launcher says (`gyre run`, torchrun, mpirun, mpiexec, srun …), else to 0 of 1.
    threads: number of threads that read and decode; default: the cores that this process can use, shared among the
        ranks of the host.
    memory_budget: bytes for batches and threads; never exceeded.
    prefetch: batches read ahead; default: as many as keep all threads busy.
    records_per_file: if given, no file is opened before it is needed; otherwise the records are counted first, for
        which compressed files are decompressed.
    damaged: "error", or "replace": a sample that cannot be read or decoded is replaced by another one, the same in
        every run, which stands at the end of its batch and is not among the `counted` ones; the ledger counts such
        samples and quotes the first error.
    output: "torch" or "numpy"; default: "torch" where torch is installed.

    Raises gyre.errors.Error: INVALID_ARGUMENT, NOT_FOUND, CORRUPT_DATA (with file, record and offset), UNSUPPORTED,
    RESOURCE_EXHAUSTED. Warns about a full shuffle that reads most of the data set for each sample. Not thread-safe.
    """

    def __init__(
        self,
        files: Files,
        fields: Mapping[str, Field],
        *,
        batch_size: int,
        shuffle: bool | str = True,
        seed: int = 0,
        open_blocks: int | None = None,
        streams: int = 1,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        threads: int | None = None,
        memory_budget: int = 1 << 30,
        prefetch: int = 0,
        records_per_file: int | None = None,
        format: str = "auto",
        classes: Sequence[str] = (),
        damaged: str = "error",
        output: str | None = None,
    ) -> None:
        output = output or ("torch" if importlib.util.find_spec("torch") else "numpy")
        _check_words(shuffle, damaged, output)
        _check_number("batch_size", batch_size, least=1)
        _check_number("seed", seed, least=0)
        _check_number("memory_budget", memory_budget, least=1)
        _check_number("prefetch", prefetch, least=0)
        _check_number("streams", streams, least=1)
        optional = {"threads": threads, "records_per_file": records_per_file, "open_blocks": open_blocks}
        for name, number in optional.items():
            if number is not None:
                _check_number(name, number, least=1)
        self._fields = dict(fields)
        if output == "numpy" and any(field.dtype == _NUMPY_HAS_NOT for field in self._fields.values()):
            raise InvalidArgumentError("NumPy has no bfloat16; use output='torch' or another dtype")
        self.batch_size, self.drop_last, self.output = batch_size, drop_last, output
        self.rank, self.world_size = _place(rank, world_size)
        self._seed, self._replaces = seed, damaged == "replace"
        self._shuffle = _ORDERS[shuffle]
        self._streams = streams if self._shuffle == "block" else 1
        places = _core.DataFiles(memory_budget)
        self._core = _core.DataLoader(
            _paths(files, places),
            places=places,
            format=format,
            records_per_file=records_per_file or 0,
            fields=[as_tuple(name, field) for name, field in self._fields.items()],
            batch_size=batch_size,
            shuffle=self._shuffle,
            seed=seed,
            drop_last=drop_last,
            streams=self._streams,
            open_blocks=(open_blocks or 0) if self._shuffle == "block" else 1,
            rank=self.rank,
            ranks=self.world_size,
            threads=threads or _default_threads(),
            memory_budget=memory_budget,
            prefetch=prefetch,
            replace_damaged=self._replaces,
            pyarrow_folder=_pyarrow_folder(),
            classes=list(classes),
        )
        if self._core.advice:
            warnings.warn(self._core.advice, stacklevel=2)
        self._start: tuple[int, int] | None = None  # Epoch and step of the next loop, if they were set.
        self._epoch = -1  # The epoch of the loop that runs or ran last …
        self._step = 0  # … and how many of its batches have been taken.
        self._loop = 0
        self._row = f"data: {_shown(files, places)}"  # Of a job's timeline.

    def __len__(self) -> int:
        """Batches of an epoch, equal on every rank."""
        return self._core.steps

    @property
    def samples(self) -> int:
        """Samples of the whole set."""
        return self._core.count

    @property
    def open_blocks(self) -> int:
        """How many files, parts of files or row groups are mixed (`shuffle="block"`); else 1."""
        return self._core.open_blocks

    @property
    def classes(self) -> list[str]:
        """The classes' names, by label, if the files have them (image folders); else empty."""
        return self._core.classes

    @property
    def samples_per_class(self) -> list[int]:
        """How many samples each of `classes` has, if the files' names say it (image folders); else empty."""
        return self._core.samples_per_class

    @property
    def left_out(self) -> str:
        """What an image folder holds beside the samples, counted: "2 hidden files, 1 file that is not an image
        (labels.csv)". Empty: nothing."""
        return self._core.left_out

    def name_of(self, sample: int) -> str:
        """The name of a sample, by its number in the order of the files: that of its file, below the folder
        ("cat/1.jpg"), or the file that holds it and its number or key there ("train-00000.tfrecord:17")."""
        if not 0 <= sample < self.samples:
            raise InvalidArgumentError(f"there is no sample {sample} among {self.samples}")
        return self._core.name_of(sample)

    @property
    def next_start(self) -> tuple[int, int]:
        """The epoch and the step in it at which the next loop begins."""
        return self._start or (self._epoch + 1, 0)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next loop; by default epochs are counted from 0."""
        _check_number("epoch", epoch, least=0)
        self._start = (epoch, 0)

    def __iter__(self) -> Iterator[Batch]:
        """The epoch begins when its first batch is requested: Lightning makes iterators that it never uses. A loop that
        goes on although a later one has begun raises InvalidArgumentError."""
        epoch, step = self.next_start
        self._core.start_epoch(epoch, step)
        self._start = None
        self._epoch, self._step = epoch, step
        self._loop += 1
        loop = self._loop
        while True:
            if self._loop != loop:
                raise InvalidArgumentError(
                    f"this loop over epoch {epoch} ended after step {step - 1}, because another loop over the same "
                    "loader was begun; a loader runs one epoch at a time: finish or leave a loop before the next, or "
                    "use a second Loader"
                )
            found = self._core.next()
            if found is None:
                return
            memories, taken, size, counted, counted_globally = found
            if (runtime := _runtime_here()) is not None:
                self._core.add_wait_to_timeline(runtime, self._row)
            elif (timeline := _timeline_of_worker()) is not None:
                self._core.add_wait_to_timeline(timeline, self._row)
            fields = {
                name: self._view(memory, field, size)
                for (name, field), memory in zip(self._fields.items(), memories, strict=True)
            }
            self._step = step = taken + 1
            batch = Batch(fields, counted=counted, epoch=epoch, step=taken)
            if self._replaces and self.world_size > 1:
                batch.__dict__["_of_one_rank"] = True
            else:
                batch.counted_globally = counted_globally
            yield batch

    def _view(self, memory: _core.Memory, field: Field, size: int) -> Any:
        shape = (size, *field.shape)
        count = math.prod(shape)
        if self.output == "numpy":
            import numpy as np  # noqa: PLC0415 - only who asks for its arrays needs it

            return np.frombuffer(memoryview(memory), dtype=field.dtype, count=count).reshape(shape)
        torch = importlib.import_module("torch")
        return torch.frombuffer(memory, dtype=getattr(torch, field.dtype), count=count).view(shape)

    def state_dict(self) -> LoaderState:
        """The position of the run: after the last batch that a loop has taken. For `load_state_dict`, on any number
        of ranks as long as the global batch is the same."""
        epoch, step = self._start or (max(self._epoch, 0), self._step)
        return {
            "epoch": epoch,
            "step": step,
            "seed": self._seed,
            "samples": self.samples,
            "global_batch": self.batch_size * self.world_size,
            "shuffle": self._shuffle,
            "streams": self._streams,
            "open_blocks": self.open_blocks,
            "files": self._core.files_checksum,
        }

    def load_state_dict(self, state: LoaderState) -> None:
        """The next loop resumes where `state` was taken. InvalidArgumentError where the number of samples, the global
        batch, the order's seed or kind, the files' names, or the beginning of the first file differ. Unlike `--resume`
        of the training programs this does not compare the files' contents: every rank would have to read them at
        each start, whether it resumes or not."""
        if not isinstance(state, Mapping):
            raise InvalidArgumentError(f"a {type(state).__name__} is not what state_dict() returns")
        here: dict[str, Any] = {**self.state_dict()}
        there: dict[str, Any] = {**state}
        of_blocks = ("streams", "open_blocks") if self._shuffle == "block" else ()
        for name in ("epoch", "step", "seed", "samples", "global_batch", "shuffle", *of_blocks, "files"):
            if name not in there:
                raise InvalidArgumentError(f"the state does not say which {name} it was taken with")
            if name not in _POSITION and there[name] != here[name]:
                raise InvalidArgumentError(
                    f"the state was taken with {_WORDS.get(name, name)} {there[name]}, and this loader has "
                    f"{here[name]}: it would not go on with the same samples"
                )
        epoch, step = (_position_in(there, name) for name in _POSITION)
        most = -(-self.samples // (self.batch_size * self.world_size))
        if step > most:
            raise InvalidArgumentError(f"the state's step is {step}, and an epoch has {most} at most")
        self._start = (epoch, step) if step < len(self) else (epoch + 1, 0)

    def ledger(self) -> StallLedger:
        """The ledger of the epoch that runs, or ran last."""
        return StallLedger(**self._core.ledger())


def _paths(files: Files, places: _core.DataFiles) -> list[bytes]:
    if isinstance(files, (str, os.PathLike)):
        return places.find(os.fsencode(files))
    paths = [places.add(os.fsencode(path)) for path in files]
    if not paths:
        raise InvalidArgumentError("the list of files is empty")
    return paths


def _shown(files: Files, places: _core.DataFiles) -> str:
    """Without what is secret in a URL."""
    names = [files] if isinstance(files, (str, os.PathLike)) else files
    first = os.fsdecode(places.add(os.fsencode(names[0])))
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


def _timeline_of_worker() -> _core.Timeline | None:
    """Of this process as a worker of parameter servers, if it is one and has a timeline. Imports nothing."""
    face = sys.modules.get("gyre.params.job")
    return None if face is None else face.timeline_or_none()


def _runtime_here() -> _core.Runtime | None:
    """This process as a rank of Gyre, if it is one: that of gyre.torch, or of torch.distributed's world. Imports
    neither."""
    face = sys.modules.get("gyre._runtime")
    if face is None:
        return None
    if (runtime := face.current_or_none()) is not None:
        return runtime.core  # type: ignore[no-any-return]
    if (distributed := _distributed_here()) is not None:
        runtime = getattr(distributed.group.WORLD, "gyre_runtime", None)
    return None if runtime is None else runtime.core


def _distributed_here() -> Any | None:
    """torch.distributed, if this process has initialised it. Imports nothing."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _pyarrow_folder() -> str:
    """The folder of the package whose libraries read Parquet files: from the environment, else this Python's; the
    package is not imported. Empty if there is none."""
    if folder := os.environ.get("GYRE_PYARROW"):
        return folder
    found = importlib.util.find_spec("pyarrow")
    return next(iter(found.submodule_search_locations or ()), "") if found else ""


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """This process's number among those that share an epoch, and their number."""
    if (rank is None) != (world_size is None):
        raise InvalidArgumentError("give both rank and world_size, or neither")
    if rank is not None and world_size is not None:
        return rank, world_size
    if (distributed := _distributed_here()) is not None:
        return distributed.get_rank(), distributed.get_world_size()
    face = sys.modules.get("gyre._runtime")  # Not imported here: a loader needs no job.
    if face is not None and (runtime := face.current_or_none()) is not None:
        return runtime.rank, runtime.size
    place = _core.launched_place()
    return place.rank, place.size


def _default_threads() -> int:
    ranks_here = 1
    with contextlib.suppress(InvalidArgumentError):  # Where it matters, _place() has raised it.
        ranks_here = max(1, _core.launched_place().local_size)
    return max(1, _core.usable_cores() // ranks_here)


def _check_words(shuffle: object, damaged: object, output: object) -> None:
    if not isinstance(shuffle, (bool, str)) or shuffle not in _ORDERS:
        raise InvalidArgumentError(f"shuffle={shuffle!r} is none of True, False, 'full', 'block', 'none'")
    if damaged not in ("error", "replace"):
        raise InvalidArgumentError(f"damaged={damaged!r} is neither 'error' nor 'replace'")
    if output not in ("torch", "numpy"):
        raise InvalidArgumentError(f"output={output!r} is neither 'torch' nor 'numpy'")


def _position_in(state: Mapping[str, Any], name: str) -> int:
    try:
        number = operator.index(state[name])  # Checkpoints may hold NumPy's.
    except TypeError:
        number = -1
    if isinstance(state[name], bool) or not 0 <= number < _TOO_LARGE:
        raise InvalidArgumentError(f"the state's {name} is {state[name]!r}; an integer from 0 is needed")
    return number


def _check_number(name: str, number: int, *, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number < _TOO_LARGE:
        raise InvalidArgumentError(f"{name}={number!r} is not an integer from {least} to 2^63 - 1")
