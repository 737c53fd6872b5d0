"""torch's store authenticates nobody, and whoever reaches its port can write into it before, after and between the
ranks. Every cell of the table in docs/adr/0066: the job runs rightly, or every rank ends with one sentence; a stranger
never takes part."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import gyre.distributed
import pytest
import torch
import torch.distributed as dist
from gyre.distributed import _mixtures, _placement, _rendezvous, _store
from gyre.errors import Error
from other_user import NOBODY, squatter
from rank_template import RankTemplate, outcomes_of

PACKAGE = Path(gyre.distributed.__file__).parent.parent.parent
SETTINGS = "STORE_TEST"
PREFIX = "0//cpu//"  # Which torch puts before the names of its first group.
LIMIT_SECONDS = 60.0
# Every cell with every forgery takes some minutes.
LONG = os.environ.get("GYRE_TEST_LONG") == "1"


# What a rank of these tests runs.


def rank_main() -> None:
    settings = json.loads(os.environ[SETTINGS])
    # As in real jobs, and sooner.
    _store.GRACE_SECONDS = 2.0
    _store.HINT_SECONDS = 0.2
    _mixtures.PATIENCE_SECONDS = 1.0
    _mixtures.LONGEST_FAREWELL = timedelta(seconds=2)
    _rendezvous.LONGEST_JOIN_SECONDS = 5.0
    if settings["host"] is not None:  # Plays a rank on a host of its own.
        _rendezvous._core.host_id = lambda: settings["host"]
        if not settings["host"].startswith("unknown/"):
            _placement.address_for_others = _rendezvous.address_for_others = lambda _: "127.0.0.1"
    if not settings["loopback"]:
        _placement._is_loopback = lambda _: False
    rank, size = settings["rank"], settings["size"]
    try:
        store = dist.TCPStore("127.0.0.1", settings["port"], is_master=False, timeout=timedelta(seconds=20))
        dist.init_process_group(
            "gyre", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=settings["seconds"])
        )
        total = torch.tensor([float(rank + 1)])
        dist.all_reduce(total)
        part = dist.new_group([0, size - 1], timeout=timedelta(seconds=settings["seconds"]))
        dist.monitored_barrier(timeout=timedelta(seconds=3))
        if rank in (0, size - 1):
            dist.all_reduce(total, group=part)
        dist.barrier()
        dist.destroy_process_group()
        print(f"RESULT sum {total.item():g}", flush=True)
    except Error as failure:
        print(f"RESULT {type(failure).__name__}: {failure}", flush=True)
        os._exit(3)


# The beginning of each rank's host_id().
HOSTS = {"several hosts": "host-", "hosts without /proc": "unknown/"}


@dataclass
class Job:
    """Ranks that meet in a store of the test's, which a stranger can reach too."""

    template: RankTemplate
    folder: Path
    store: dist.TCPStore
    size: int = 3
    keys: Sequence[Path | None] = ()  # Each rank's key file.
    # Or "several hosts", "hosts without /proc", or "unknown": one host, but nothing proves it.
    placement: str = "one host"
    seconds: float = 25.0
    stall_warning_seconds: int = 60
    output: list[str] = field(default_factory=list)

    def run(self, started: Sequence[int] | None = None) -> list[str]:
        """What each rank ends with; of those in `started`, if not of all."""
        ranks, paths = [], []
        for rank in range(self.size) if started is None else started:
            paths.append(self.folder / f"{secrets.token_hex(4)}.{rank}")
            with paths[-1].open("wb") as output:
                call = [__file__, "rank_main"]
                ranks.append(self.template.fork(call, self._environment(rank), self.folder, output, {}))
        outcomes = outcomes_of(ranks, paths, LIMIT_SECONDS)
        self.output = [outcome.output for outcome in outcomes]
        results = [re.findall(r"^RESULT (.*)", outcome.output, re.MULTILINE) for outcome in outcomes]
        assert all(len(result) == 1 for result in results), "\n---\n".join(self.output)
        return [result[0] for result in results]

    def _environment(self, rank: int) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GYRE_")}
        settings = {
            "rank": rank,
            "size": self.size,
            "port": self.store.port,
            "host": f"{HOSTS[self.placement]}{rank}" if self.placement in HOSTS else None,
            "loopback": self.placement == "one host",
            "seconds": self.seconds,
        }
        environment = {**kept, "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1", SETTINGS: json.dumps(settings)}
        environment["GYRE_STALL_WARNING_SECONDS"] = str(self.stall_warning_seconds)
        key = self.keys[rank] if self.keys else None
        return environment if key is None else {**environment, "GYRE_KEY_FILE": str(key)}

    def sums(self) -> list[str]:
        """What the ranks print if nobody else has taken part."""
        whole = self.size * (self.size + 1) // 2
        return [f"sum {2 * whole if rank in (0, self.size - 1) else whole}" for rank in range(self.size)]


@pytest.fixture(scope="module")
def template() -> Iterator[RankTemplate]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GYRE_")}
    running = RankTemplate({**kept, "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"})
    yield running
    running.close()


@pytest.fixture
def job(template: RankTemplate, tmp_path: Path) -> Job:
    return Job(template, tmp_path, new_store())


def new_store() -> dist.TCPStore:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def stranger(job: Job) -> dist.TCPStore:
    """Another connection to the store, by nobody of the job's."""
    return dist.TCPStore("127.0.0.1", job.store.port, is_master=False, timeout=timedelta(seconds=20))


def key_file(folder: Path) -> Path:
    path = folder / f"key-{secrets.token_hex(4)}"
    path.touch(mode=0o600)
    path.write_bytes(secrets.token_bytes(32))
    return path


# What a stranger writes.

FORGED_KEY = secrets.token_hex(32)
FORGERIES: dict[str, str] = {
    "garbage": "\x00\xff not a word",
    "empty": "",
    "huge": "x" * 1_000_000,
    "nested": "[" * 50_000,
    "a number": "7",
    "its own key": json.dumps({"rendezvous": "tcp:127.0.0.1:9", "key": FORGED_KEY, "nonce": "0", "host": "elsewhere"}),
    "its own socket": json.dumps({"meet": "gyre-of-a-stranger", "host": "elsewhere", "nonce": "0", "yours": "0"}),
    "odd types": json.dumps({"meet": 7, "host": ["x"], "nonce": None, "has": "no", "with": "x", "without": [[1]]}),
    "no secret": json.dumps({"host": "elsewhere", "secret": False, "has": False}),
    "a verdict": json.dumps({"with": [0], "without": [1, 2], "other": []}),
    "a failure": json.dumps({"failure": "please give up"}),
}


def predictable_names(size: int) -> list[str]:
    """All that ranks without a secret use, and the notes of the others."""
    names = [f"gyre.0.hello.{rank}" for rank in range(size)] + ["gyre.0.agreement.0", "gyre.0.note.verdict.0"]
    return names + [f"gyre.0.note.{purpose}.{rank}" for purpose in ("secret", "heard") for rank in range(size)]


def test_the_strangers_of_these_tests_know_the_names_that_can_be_known(job: Job) -> None:
    assert job.run() == job.sums()
    open_names = {name for name in job.store.list_keys() if re.match(rf"{PREFIX}gyre\.0\.", name)}
    assert open_names <= {PREFIX + name for name in predictable_names(job.size)}
    assert {f"{PREFIX}gyre.joined", f"{PREFIX}gyre.0.hello.1", f"{PREFIX}gyre.0.agreement.0"} <= set(
        job.store.list_keys()
    )


def write_first(job: Job, text: str, *, beside: Sequence[str] = ()) -> None:
    store = stranger(job)
    for name in predictable_names(job.size):
        if not any(part in name for part in beside):
            store.set(PREFIX + name, text)


class Meddler:
    """A stranger who watches all names, and does `meddle` to each as soon as a rank has used it."""

    def __init__(self, job: Job, meddle: Callable[[dist.TCPStore, str], object]) -> None:
        self._store = stranger(job)
        self._meddle = meddle
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.is_set():
            for name in self._store.list_keys():
                if "gyre." in name:
                    self._meddle(self._store, name)
            time.sleep(0.001)


def writes_last(job: Job, text: str) -> Meddler:
    def write(store: dist.TCPStore, name: str) -> None:
        if not store.get(name).isdigit():  # A counter, over which TCPStore breaks.
            store.set(name, text)

    return Meddler(job, write)


def assert_right_or_one_sentence(job: Job, results: Sequence[str]) -> None:
    for result, right in zip(results, job.sums(), strict=True):
        assert result == right or re.match(r"\w+Error: \S", result), job.output
    assert len({result.startswith("sum") for result in results}) == 1, job.output
    for output in job.output:
        assert "Traceback" not in output, output
        assert FORGED_KEY not in output


# {secret on all, some, none} x {one host, several}, without a stranger.


@pytest.mark.parametrize("placement", ["one host", "unknown", "several hosts"])
def test_ranks_with_one_secret_form_a_group_and_show_no_key_to_the_store(
    job: Job, tmp_path: Path, placement: str
) -> None:
    job.placement, job.keys = placement, [key_file(tmp_path)] * job.size
    assert job.run() == job.sums()
    words = [job.store.get(name).decode() for name in job.store.list_keys()]
    assert not any("key" in word for word in words), words
    assert not any("RuntimeWarning" in output for output in job.output)


@pytest.mark.parametrize("placement", ["one host", "unknown"])
def test_ranks_of_one_host_without_a_secret_get_a_key_outside_the_store(job: Job, placement: str) -> None:
    job.placement = placement
    assert job.run() == job.sums()
    words = [job.store.get(name).decode() for name in job.store.list_keys()]
    assert not any('"key"' in word for word in words), words
    assert not any("RuntimeWarning" in output for output in job.output)


def test_ranks_of_several_hosts_without_a_secret_warn_each_of_what_follows(job: Job) -> None:
    job.placement = "several hosts"
    assert job.run() == job.sums()
    for output in job.output:
        assert output.count("anybody who can reach the store's port") == 1, output
        assert "GYRE_KEY_FILE" in output


MIXTURES = [("one host", (0,)), ("unknown", (1, 2)), ("several hosts", (0, 2))]
ALL_MIXTURES = [(place, have) for place in ("one host", "unknown", "several hosts") for have in ((0,), (1, 2), (0, 2))]


@pytest.mark.parametrize(("placement", "have"), ALL_MIXTURES if LONG else MIXTURES)
def test_a_mixture_of_ranks_with_and_without_a_secret_is_one_error_on_every_rank(
    job: Job, tmp_path: Path, placement: str, have: tuple[int, ...]
) -> None:
    key = key_file(tmp_path)
    job.placement, job.keys = placement, [key if rank in have else None for rank in range(job.size)]
    results = set(job.run())
    assert len(results) == 1, results
    result = results.pop()
    assert result.startswith("MismatchError: "), result
    others = [rank for rank in range(job.size) if rank not in have]
    for ranks, what in ((have, "one"), (others, "none")):
        many = len(ranks) > 1
        assert f"rank{'s' if many else ''} {', '.join(map(str, ranks))} {'have' if many else 'has'} {what}" in result


def test_ranks_with_different_secrets_are_one_error_on_every_rank(job: Job, tmp_path: Path) -> None:
    mine = key_file(tmp_path)
    job.keys = [mine, mine, key_file(tmp_path)]
    results = set(job.run())
    assert len(results) == 1, results
    assert "ranks 0, 1 have one, rank 2 has another one" in results.pop()


def test_words_are_sealed_as_the_format_says(job: Job, tmp_path: Path) -> None:
    """docs/formats/wire.md, with Python's own HMAC."""
    key = key_file(tmp_path)
    job.keys = [key] * job.size
    assert job.run() == job.sums()

    def under(secret: bytes, text: str) -> bytes:
        return hmac.digest(secret, text.encode(), "sha256")

    sealing = under(under(key.read_bytes(), "gyre torch secret"), "gyre torch store")
    scope = "0 of process group '0'"
    purposes = [("hello", rank) for rank in range(job.size)]
    purposes += [(f"agreement with rank {rank}", 0) for rank in range(1, job.size)]
    nonces = {}
    for purpose, writer in purposes:
        name = under(sealing, json.dumps(["name", scope, purpose, writer, ""])).hex()[:32]
        assert job.store.check([f"{PREFIX}gyre.{name}"]), purpose
        word = job.store.get(f"{PREFIX}gyre.{name}").decode()
        assert word[:64] == under(sealing, json.dumps(["word", scope, purpose, writer, word[64:]])).hex()
        value = json.loads(word[64:])
        if purpose == "hello":
            nonces[writer] = value["nonce"]
        else:
            assert value["yours"] == nonces[int(purpose.split()[-1])]
            everybody = hashlib.sha256(json.dumps([nonces[rank] for rank in range(job.size)]).encode())
            assert (value["nonce"], value["everybody"]) == (nonces[0], everybody.hexdigest())


@pytest.mark.parametrize("with_secret", [True, False])
def test_ranks_that_cannot_find_out_their_host_are_told_so_where_only_the_loopback_leads_to_the_store(
    job: Job, tmp_path: Path, with_secret: bool
) -> None:
    """The error was about the address of the store, which was right."""
    job.placement, job.keys = "hosts without /proc", [key_file(tmp_path) if with_secret else None] * job.size
    results = set(job.run())
    assert len(results) == 1, results
    result = results.pop()
    assert result.startswith("InvalidArgumentError: ranks 0, 1, 2 cannot find out which host this is"), result
    assert "mount /proc where they run; and the ranks are on several hosts, but '127.0.0.1'" in result


# The same with a stranger who writes first.


@pytest.mark.parametrize("forgery", FORGERIES if LONG else ["garbage", "its own key", "no secret", "a verdict"])
def test_with_a_secret_what_a_stranger_wrote_first_changes_nothing(job: Job, tmp_path: Path, forgery: str) -> None:
    job.keys = [key_file(tmp_path)] * job.size
    write_first(job, FORGERIES[forgery])
    assert job.run() == job.sums()
    assert not any("RuntimeWarning" in output for output in job.output)


@pytest.mark.parametrize("forgery", FORGERIES if LONG else ["nested", "its own key", "odd types", "a failure"])
def test_on_one_host_what_a_stranger_wrote_first_never_brings_its_key_in(job: Job, forgery: str) -> None:
    # A verdict cannot be told from that of a rank 0 with a secret.
    write_first(job, FORGERIES[forgery], beside=("verdict", "note.secret"))
    assert job.run() == job.sums()
    assert not any("RuntimeWarning" in output for output in job.output)
    job.store = new_store()
    write_first(job, FORGERIES[forgery])
    assert_right_or_one_sentence(job, job.run())


def test_a_stranger_without_a_secret_among_ranks_that_have_one_does_not_make_rank_zero_publish_a_key(
    job: Job, tmp_path: Path
) -> None:
    """It did: with "secret": false in the name of a rank on another host."""
    job.placement, job.keys, job.seconds = "several hosts", [key_file(tmp_path)] * job.size, 8.0
    store = stranger(job)
    word = json.dumps({"host": "elsewhere", "secret": False, "has": False})
    for name in ("gyre.0.hello.2", "gyre.0.rank.2", "gyre.0.note.secret.2"):
        store.set(PREFIX + name, word)
    assert_right_or_one_sentence(job, job.run())
    words = [job.store.get(name).decode() for name in job.store.list_keys()]
    assert not any('"key"' in word for word in words), words


@pytest.mark.needs_root
def test_a_socket_of_another_user_that_the_store_names_is_not_asked_for_a_key(job: Job) -> None:
    word = json.dumps({"meet": "gyre-of-a-stranger"})
    with squatter(["gyre-of-a-stranger"]) as process:
        stranger(job).set(f"{PREFIX}gyre.0.agreement.0", word)
        assert job.run() == job.sums()
        # Rank 0 does not come to write the right one.
        job.store = new_store()
        stranger(job).set(f"{PREFIX}gyre.0.agreement.0", word)
        for result in job.run(started=[1, 2]):
            assert result.startswith("AuthenticationError: "), result
            assert f"process {process} of user {NOBODY} (nobody)" in result
            assert "what torch's store holds as rank 0's agreement is not believed" in result


# A stranger who writes last, over everything that ranks have written.


@pytest.mark.parametrize("forgery", FORGERIES if LONG else ["its own key"])
@pytest.mark.parametrize("with_secret", [True, False])
def test_a_stranger_who_writes_over_every_word_ends_the_job_at_most(
    job: Job, tmp_path: Path, forgery: str, with_secret: bool
) -> None:
    job.keys, job.seconds = [key_file(tmp_path) if with_secret else None] * job.size, 8.0
    with writes_last(job, FORGERIES[forgery]):
        results = job.run()
    assert_right_or_one_sentence(job, results)


def test_words_of_an_earlier_group_are_not_believed(job: Job, tmp_path: Path) -> None:
    job.keys, job.seconds = [key_file(tmp_path)] * job.size, 8.0
    assert job.run() == job.sums()
    recorded = {name: job.store.get(name) for name in job.store.list_keys()}
    words = {name: word for name, word in recorded.items() if "gyre." in name and not word.isdigit()}
    assert words
    # First: all words, or only what rank 0 said, which is then written over in time.
    job.store = new_store()
    for name, word in words.items():
        job.store.set(name, word)
    assert_right_or_one_sentence(job, job.run())
    job.store = new_store()
    for name, word in words.items():
        if b"yours" in word:
            job.store.set(name, word)
    assert job.run() == job.sums()


def test_words_of_another_rank_are_not_believed(job: Job, tmp_path: Path) -> None:
    """A signed word in the place of another one."""
    job.keys, job.seconds = [key_file(tmp_path)] * job.size, 8.0
    assert job.run() == job.sums()
    recorded = {name: job.store.get(name) for name in job.store.list_keys()}
    words = [word for word in recorded.values() if not word.isdigit()]
    job.store = new_store()
    for name, word in recorded.items():
        if not word.isdigit():
            job.store.set(name, words[(words.index(word) + 1) % len(words)])
    assert_right_or_one_sentence(job, job.run())


@pytest.mark.parametrize("with_secret", [True, False])
def test_a_counter_that_is_no_number_is_one_sentence_at_most(job: Job, tmp_path: Path, with_secret: bool) -> None:
    """TCPStore closes the connection of a rank that adds to it."""
    job.keys = [key_file(tmp_path) if with_secret else None] * job.size
    stranger(job).set(f"{PREFIX}gyre.joined", "many")
    results = job.run()
    if with_secret:  # Nobody else knows the name of theirs.
        assert results == job.sums()
    else:
        assert all("torch's store broke off while this rank was counted" in result for result in results), results


@pytest.mark.parametrize("with_secret", [True, False])
def test_ranks_whose_words_are_deleted_say_what_they_wait_for(job: Job, tmp_path: Path, with_secret: bool) -> None:
    """They waited in silence for torch's limit of 30 minutes."""
    job.keys, job.seconds = [key_file(tmp_path) if with_secret else None] * job.size, 4.0
    job.stall_warning_seconds = 1
    with Meddler(job, dist.TCPStore.delete_key):
        assert_right_or_one_sentence(job, job.run())
    job.store = new_store()
    results = job.run(started=[1, 2])  # As if all that rank 0 writes were deleted in time.
    assert all("rank 0 did not come" in result for result in results), results
    for result, output in zip(results, job.output, strict=True):
        assert re.search(r"this rank has waited 1 s for rank \d to come to init_process_group", output), output
        assert "or what it wrote into torch's store was deleted" in result


def test_on_one_host_a_stranger_who_says_that_ranks_are_elsewhere_gets_no_key(job: Job) -> None:
    """Rank 0 published one."""
    store = stranger(job)
    for rank in range(1, job.size):
        store.set(f"{PREFIX}gyre.0.hello.{rank}", json.dumps({"host": "elsewhere"}))
    assert job.run() == job.sums()
    words = [job.store.get(name).decode() for name in job.store.list_keys()]
    assert not any('"key"' in word for word in words), words
