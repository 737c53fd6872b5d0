"""One table of behaviours for every format x shuffle x world size, on data sets of random sizes: what holds for one
holds for all. The model is the list of the samples' numbers; each case prints its seed (GYRE_TEST_SEED repeats it)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import first_seed, rounds
from gyre.errors import CorruptDataError, Error
from sample_sets import SETS, WrittenSet

from gyre.data import Loader

SHUFFLES = (True, "block", False)
WORLD_SIZES = (1, 2, 3, 4, 5)
ROUNDS = rounds(2, 40)


class Case:
    """A data set and what a loader of it is given."""

    def __init__(self, folder: Path, name: str, shuffle: bool | str, seed: int) -> None:
        self.choose = random.Random(f"{name} {shuffle} {seed}")
        self.data: WrittenSet = SETS[name](folder, self.choose)
        self.options: dict[str, Any] = {"shuffle": shuffle, "seed": self.choose.randrange(1000), **self.data.options}
        if shuffle == "block":
            self.options["open_blocks"] = self.choose.choice((None, 1, 2, 5))
            self.options["streams"] = self.choose.choice((1, 1, 2, 3))
        self.epoch = self.choose.randrange(3)

    def loader(self, batch: int, rank: int = 0, world: int = 1, **more: Any) -> Loader:
        options = {"threads": self.choose.choice((1, 2, 3)), **self.options, **more}
        made = Loader(
            self.data.files, self.data.fields, batch_size=batch, rank=rank, world_size=world, output="numpy", **options
        )
        made.set_epoch(self.epoch)
        return made

    def counted(self, loader: Loader) -> list[list[int]]:
        """The numbers of the samples that count, batch by batch."""
        return [self.data.numbers(batch)[: batch.counted] for batch in loader]

    def over_ranks(self, batch: int, world: int, **more: Any) -> list[list[int]]:
        """The same of each step, over all ranks."""
        ranks = [list(self.loader(batch, rank, world, **more)) for rank in range(world)]
        assert len({len(batches) for batches in ranks}) == 1, "every rank has the same number of batches"
        steps = []
        for together in zip(*ranks, strict=True):
            steps.append([number for part in together for number in self.data.numbers(part)[: part.counted]])
            assert {part.counted_globally for part in together} == {sum(part.counted for part in together)}
        return steps

    def alike(self, steps: list[list[int]]) -> list[list[int]]:
        """Steps for comparing: of several streams each rank takes its own, so that ranks divide a step otherwise."""
        return [sorted(step) for step in steps] if self.options.get("streams", 1) > 1 else steps


def flat(steps: list[list[int]]) -> list[int]:
    return [number for step in steps for number in step]


def divided(order: list[int], size: int) -> list[list[int]]:
    return [order[at : at + size] for at in range(0, len(order), size)]


@pytest.fixture(params=SHUFFLES, ids=lambda shuffle: f"shuffle={shuffle}")
def each_case(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Any]:
    def cases(name: str) -> Any:
        for seed in range(first_seed(), first_seed() + ROUNDS):
            folder = tmp_path / f"{seed}"
            folder.mkdir()
            print(f"GYRE_TEST_SEED={seed}")
            yield Case(folder, name, request.param, seed)

    return cases


EachCase = Callable[[str], Any]
every_set = pytest.mark.parametrize("name", SETS)


@every_set
def test_every_sample_counts_once_per_epoch_in_one_order_for_any_world(each_case: EachCase, name: str) -> None:
    for case in each_case(name):
        order = flat(case.counted(case.loader(1, threads=1)))
        assert sorted(order) == list(range(case.data.count))
        if case.options["shuffle"] is False:
            assert order == sorted(order)
        for world in WORLD_SIZES:
            batch = case.choose.randint(1, 7)
            steps = case.over_ranks(batch, world)
            assert case.alike(steps) == case.alike(divided(order, batch * world)), f"world {world}, batch {batch}"
            if case.data.count < batch * world:
                continue
            dropped = case.over_ranks(batch, world, drop_last=True)
            assert dropped == steps[: case.data.count // (batch * world)]


@every_set
def test_a_run_resumes_exactly_at_every_position_with_any_world(each_case: EachCase, name: str) -> None:
    for case in each_case(name):
        together = case.choose.choice((2, 4, 12))
        whole = case.over_ranks(together, 1)
        for taken in range(len(whole) + 1):
            interrupted = case.loader(together)
            batches = iter(interrupted)
            for _ in range(taken):
                next(batches)
            state = interrupted.state_dict() if taken else None
            world = case.choose.choice([w for w in WORLD_SIZES if together % w == 0])
            rest: list[list[list[int]]] = []
            for rank in range(world):
                resumed = case.loader(together // world, rank, world)
                if state is not None:
                    resumed.load_state_dict(state)
                if taken < len(whole):
                    rest.append(case.counted(resumed))
                else:
                    assert next(iter(resumed)).epoch == case.epoch + 1
            steps = [flat(list(parts)) for parts in zip(*rest, strict=True)]
            assert case.alike(steps) == case.alike(whole[taken:]), (
                f"after {taken} of {len(whole)} batches, on {world} ranks"
            )


@every_set
def test_seeds_and_epochs_give_other_orders_and_always_the_same_one(each_case: EachCase, name: str) -> None:
    for case in each_case(name):
        order = flat(case.counted(case.loader(3)))
        assert flat(case.counted(case.loader(5, threads=4, prefetch=1))) == order
        if case.options["shuffle"] is False or case.data.count < 12:
            continue
        others = {tuple(flat(case.counted(case.loader(3, seed=seed)))) for seed in range(2000, 2006)}
        assert len(others) == 6
        following = case.loader(3)
        following.set_epoch(case.epoch + 7)
        assert flat(case.counted(following)) != order


def most_open(blocks: list[list[int]], order: list[int]) -> int:
    """The most blocks of which some samples, and not yet all, have come."""
    block_of = {number: block for block, numbers in enumerate(blocks) for number in numbers}
    left = {block: len(numbers) for block, numbers in enumerate(blocks)}
    opened: set[int] = set()
    most = 0
    for number in order:
        block = block_of[number]
        opened.add(block)
        most = max(most, len(opened))
        left[block] -= 1
        if left[block] == 0:
            opened.remove(block)
    return most


@every_set
def test_block_shuffle_mixes_a_few_blocks_at_a_time(each_case: EachCase, name: str) -> None:
    for case in each_case(name):
        loader = case.loader(5)
        if case.options["shuffle"] != "block":
            assert loader.open_blocks == 1
            continue
        open_blocks, streams = loader.open_blocks, case.options["streams"]
        assert open_blocks == (case.options["open_blocks"] or 16)
        order = flat(case.counted(loader))
        assert most_open(case.data.blocks, order) <= open_blocks * streams
        # With one stream and one open block whole blocks follow each other.
        order = flat(case.counted(case.loader(5, open_blocks=1, streams=1)))
        assert most_open(case.data.blocks, order) == 1


@pytest.mark.parametrize("name", ["tfrecord", "tar", "folder"])
def test_a_damaged_sample_is_named_or_replaced_and_then_does_not_count(each_case: EachCase, name: str) -> None:
    for case in each_case(name):
        if case.data.count < 2:
            continue
        batch, world = case.choose.randint(1, 5), case.choose.choice(WORLD_SIZES)
        order = flat(case.over_ranks(batch, world))
        assert case.data.damage is not None
        damaged, file = case.data.damage()
        with pytest.raises(CorruptDataError, match=file):
            case.over_ranks(batch, world)
        replaced = [list(case.loader(batch, rank, world, damaged="replace")) for rank in range(world)]
        for part in (part for parts in replaced for part in parts):
            if world == 1:
                assert part.counted_globally == part.counted
                continue
            with pytest.raises(Error, match="add up `counted` over the ranks"):
                _ = part.counted_globally
        seen = [n for parts in replaced for part in parts for n in case.data.numbers(part)[: part.counted]]
        assert sorted(seen) == sorted(set(order) - {damaged})


@every_set
def test_a_state_that_names_no_position_is_refused(each_case: EachCase, name: str) -> None:
    for case in each_case(name):
        loader = case.loader(2)
        state = loader.state_dict()
        bad_ones: tuple[Any, ...] = (-1, 1.5, "1", None, True, [], float("nan"))
        for key, last in (("epoch", 2**63 - 1), ("step", len(loader))):
            for bad in (*bad_ones, last + 1):
                with pytest.raises(Error, match=f"the state's {key} is"):
                    case.loader(2).load_state_dict({**state, key: bad})
            with pytest.raises(Error, match=f"does not say which {key}"):
                case.loader(2).load_state_dict({k: v for k, v in state.items() if k != key})
        with pytest.raises(Error, match="is not what state_dict"):
            case.loader(2).load_state_dict(bad_ones[3])
        resumed = case.loader(2)
        resumed.load_state_dict({**state, "epoch": np.int64(2), "step": np.int32(0)})
        assert next(iter(resumed)).epoch == 2


@every_set
def test_a_state_of_another_order_is_refused(each_case: EachCase, name: str) -> None:
    for case in each_case(name):
        state = case.loader(2).state_dict()
        case.loader(2).load_state_dict(state)
        for other in (s for s in SHUFFLES if s != case.options["shuffle"]):
            with pytest.raises(Error, match="shuffle"):
                case.loader(2, shuffle=other).load_state_dict(state)
        if case.options["shuffle"] == "block":
            for changed in ("streams", "open_blocks"):
                with pytest.raises(Error, match=f"taken with {changed} "):
                    case.loader(2, **{changed: state[changed] + 1}).load_state_dict(state)
