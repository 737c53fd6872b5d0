"""The same programs start under other people's launchers, recognised by the environment: the real ones are run here."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from machine import free_port
from slurm_cluster import slurm_cluster

from gyre.data import write_tfrecords

RANK = Path(__file__).resolve().parent.parent / "support" / "ranks_add_up.py"


def added_by(ranks: int) -> set[str]:
    return {f"rank {rank} of {ranks}, local {rank} of {ranks}: {ranks * (ranks - 1) // 2}" for rank in range(ranks)}


def output_of(command: Sequence[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def one_error_of(launcher: Sequence[str], program: str, words: str, folder: Path) -> str:
    """The line with which each of two ranks ends, and nothing else of theirs. They write it to files of their own:
    Hydra now and then loses the last words of a rank that ends at once."""
    rank = ["sh", "-c", f"exec {program} 2>{folder}/error.$$"]
    done = subprocess.run([*launcher, *rank], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode != 0, done.stdout
    assert "launcher=" not in done.stdout
    texts = [path.read_text() for path in folder.glob("error.*")]
    errors = [line for text in texts for line in text.splitlines() if words in line]
    assert 1 <= len(errors) <= 2, (texts, done.stderr)  # The launcher may end the second one first.
    return errors[0]


def sayings_in(output: str) -> set[str]:
    """What each rank said. Not by lines: launchers that pass bytes on as they come mix those of several ranks."""
    return set(re.findall(r"rank \d+ of \d+, local \d+ of \d+: \d", output))


def ranks_of(command: Sequence[str], environment: dict[str, str] | None = None) -> set[str]:
    return sayings_in(output_of(command, environment))


def mpirun(ranks: int) -> list[str]:
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", *as_root, "--oversubscribe", "-n", str(ranks)]


def torchrun(ranks: int) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]


def test_torchrun(gyre: Path) -> None:
    assert ranks_of([*torchrun(3), str(RANK)]) == added_by(3)
    # A job for each of the ranks of `gyre run`, which must not take one's ranks for another's.
    assert ranks_of([str(gyre), "run", "-n", "2", "--", *torchrun(2), str(RANK)]) == added_by(2)


def test_mpirun() -> None:
    assert ranks_of([*mpirun(3), sys.executable, str(RANK)]) == added_by(3)


def test_hydra(gyre: Path, tmp_path: Path) -> None:
    """MPICH's and Intel MPI's mpiexec, which tells a rank its number and nothing about the others. Two at once."""
    probe = str(gyre.parent.parent / "tests" / "cluster" / "gyre_join_probe")
    # A shell between the launcher and a rank is what people have.
    command = ["mpiexec.hydra", "-n", "2", "sh", "-c", f"{probe}; exit $?"]
    with ThreadPoolExecutor() as pool:
        outputs = list(pool.map(output_of, [command, command]))
    for output in outputs:
        ranks = re.findall(r"launcher=(\S+) rank=(\d) size=(\d) local=(\d/\d)", output)
        assert sorted(ranks) == [("hydra", "0", "2", "0/2")] * 2 + [("hydra", "1", "2", "1/2")] * 2, output
    assert ranks_of(["mpiexec.hydra", "-n", "3", sys.executable, str(RANK)]) == added_by(3)
    # As on several hosts: over the network, with the key in a file.
    key = tmp_path / "key"
    key.write_bytes(secrets.token_bytes(32))
    key.chmod(0o600)
    variables = {"MPI_LOCALNRANKS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    settings = [f"{name}={value}" for name, value in variables.items()]
    apart = ["mpiexec.hydra", "-n", "2", "env", *settings]
    assert "rank=1 size=2" in output_of([*apart, f"GYRE_KEY_FILE={key}", probe])
    assert "gyre run" in one_error_of(apart, probe, "GYRE_KEY_FILE is not set, and hydra spread this job", tmp_path)


def test_one_of_several_that_cannot_join_the_others_is_one_sentence(gyre: Path, tmp_path: Path) -> None:
    probe = str(gyre.parent.parent / "tests" / "cluster" / "gyre_join_probe")
    # Hydra in the mode in which it hands down a port to ask at, and no numbers.
    words = "a launcher started this process as one of"
    error = one_error_of(["mpiexec.hydra", "-pmi-port", "-n", "2"], probe, words, tmp_path)
    assert "start the ranks with gyre run, torchrun, mpirun, mpiexec or srun" in error


def test_srun(tmp_path: Path) -> None:
    with slurm_cluster(tmp_path) as environment:
        assert ranks_of(["srun", "-n", "3", sys.executable, str(RANK)], environment) == added_by(3)


def test_gyre_run(gyre: Path) -> None:
    assert ranks_of([str(gyre), "run", "-n", "3", "--", sys.executable, str(RANK)]) == added_by(3)


SHARE = Path(__file__).resolve().parent.parent / "support" / "ranks_share_samples.py"


def shares_of(ranks: int) -> set[str]:
    return {f"loader {rank}/{ranks}, group {rank}/{ranks}: each sample [1]" for rank in range(ranks)}


@pytest.fixture
def share(tmp_path: Path) -> list[str]:
    """A DDP script with a loader that is made before the ranks join."""
    write_tfrecords(tmp_path / "part.tfrecord", [{"index": number} for number in range(18)])
    return [sys.executable, str(SHARE), str(tmp_path / "part.tfrecord")]


def shared_by(command: Sequence[str], environment: dict[str, str] | None = None) -> set[str]:
    return set(re.findall(r"loader \d+/\d+, group \d+/\d+: each sample \[\d\]", output_of(command, environment)))


@pytest.mark.parametrize(
    ("launcher", "ranks"),
    [
        (mpirun(3), 3),
        (["mpiexec.hydra", "-n", "3"], 3),
        (["gyre", "run", "-n", "3", "--"], 3),
        # One torchrun, which a launcher has started as its only rank.
        ([*mpirun(1), *torchrun(2)], 2),
        # One for each of several ranks: jobs of their own, with as many ranks as there are torchruns, or fewer.
        ([*mpirun(2), *torchrun(2)], 2),
        ([*mpirun(3), *torchrun(2)], 2),
        (["gyre", "run", "-n", "2", "--", *torchrun(2)], 2),
    ],
    ids=[
        "mpirun",
        "mpiexec",
        "gyre run",
        "mpirun 1 torchrun",
        "mpirun 2 torchrun",
        "mpirun 3 torchrun",
        "gyre torchrun",
    ],
)
def test_a_loader_made_first_and_torchs_process_group_find_their_rank(
    launcher: list[str], ranks: int, share: list[str]
) -> None:
    interpreter = share[1:] if "torch.distributed.run" in launcher else share
    assert shared_by([*launcher, *interpreter]) == shares_of(ranks)


def test_under_srun_too_and_again_after_the_group_was_destroyed(share: list[str], tmp_path: Path) -> None:
    with slurm_cluster(tmp_path) as environment:
        assert shared_by(["srun", "-n", "3", *share, "--twice"], environment) == shares_of(3)


def test_ranks_of_several_hosts_are_told_what_to_set(share: list[str]) -> None:
    apart = {**os.environ, "MPI_LOCALNRANKS": "1"}
    command = ["mpiexec.hydra", "-n", "3", "env", "MPI_LOCALNRANKS=1"]
    failed = subprocess.run([*command, *share], capture_output=True, text=True, timeout=240, check=False, env=apart)
    assert failed.returncode != 0
    assert "set MASTER_ADDR to rank 0's host" in failed.stdout + failed.stderr
    address = ["MASTER_ADDR=127.0.0.1", f"MASTER_PORT={free_port()}"]
    assert shared_by([*command, *address, *share]) == shares_of(3)


def test_a_loader_refuses_half_of_what_a_launcher_sets(share: list[str]) -> None:
    half = {**os.environ, "RANK": "1"}
    failed = subprocess.run(share, capture_output=True, text=True, timeout=240, check=False, env=half)
    assert failed.returncode != 0
    assert "RANK is '1', so a launcher started this process as one of several" in failed.stderr


def test_no_launcher_is_a_job_of_one(share: list[str]) -> None:
    assert ranks_of([sys.executable, str(RANK)]) == {"rank 0 of 1, local 0 of 1: 0"}
    assert shared_by(share) == {"loader 0/1, group 0/1: each sample [1]"}
    # An address without a rank is what is left of several.
    half = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    failed = subprocess.run(share, capture_output=True, text=True, timeout=240, check=False, env=half)
    assert "environment variable RANK expected" in failed.stderr


def test_a_rank_that_contradicts_its_launcher_is_refused_by_loader_and_process_group(share: list[str]) -> None:
    own = ["env", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={free_port()}"]
    group = [sys.executable, "-c", "import torch.distributed as d, gyre.distributed; d.init_process_group('gyre')"]
    for program in (share, group):
        command = [*mpirun(3), *own, *program]
        failed = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert failed.returncode != 0
        assert "RANK is 0 with a WORLD_SIZE of 2, but OMPI_COMM_WORLD_RANK is" in failed.stderr


def test_two_jobs_of_one_launcher_do_not_meet(gyre: Path) -> None:
    """Two jobs at the same time have rendezvous of their own. Ranks without Python: they start at the same moment."""
    command = [*mpirun(2), str(gyre.parent.parent / "tests" / "cluster" / "gyre_join_probe")]
    jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    for job in jobs:
        out, _ = job.communicate(timeout=240)
        assert job.returncode == 0, out
        places = sorted(re.findall(r"launcher=(\S+) rank=(\d) size=(\d) local=(\d/\d)", out))
        # Each joins twice.
        assert places == [("mpirun", "0", "2", "0/2")] * 2 + [("mpirun", "1", "2", "1/2")] * 2, out
