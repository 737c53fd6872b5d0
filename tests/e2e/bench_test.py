"""`gyre bench` as its users meet it: rows that hold what they promise, messages for what cannot be, nothing left
behind. How fast anything is has no part in it."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gyre.bench
import hosts
import pytest
import torch
from effort import is_long
from gyre.bench.models import MODELS, tensor_list
from gyre.bench.ranks.step import Cost, added
from gyre.bench.report import table
from running_job import Job, wait_until
from slurm_cluster import slurm_cluster

Bench = Callable[..., "subprocess.CompletedProcess[str]"]
LONGEST_SECONDS = 240
PACKAGE = Path(gyre.bench.__file__).parent.parent.parent
TOOLS = Path(hosts.__file__).parent
QUICK = ["--seconds", "0"]


def environment(scratch: Path) -> dict[str, str]:
    modules = f"{PACKAGE}:{TOOLS}"
    return {"GYRE_PYTHON": sys.executable, "PYTHONPATH": modules, "TMPDIR": str(scratch)}


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """Where the benchmarks keep what they need while they run; nothing may be left of it."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def bench(gyre: Path, tmp_path: Path, scratch: Path) -> Bench:
    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [str(gyre), "bench", *arguments]
        variables = {**os.environ, **environment(scratch), **variables}
        return subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
        )

    return run


def rows_of(done: subprocess.CompletedProcess[str], hosts: int = 1) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    for row in rows:
        assert {"bench", "ranks", "bytes", "path", "face", "hosts", "ours_us", "peers", "bound_us"} <= row.keys()
        assert row["hosts"] == hosts
    return rows


def test_allreduce_has_a_row_for_every_way_in_beside_both_peers(bench: Bench) -> None:
    done = bench("allreduce", "--ranks", "2", "--sizes", "4,64KB", *QUICK, "-o", "json")
    rows = rows_of(done)
    ways = {(row["bytes"], row["face"], row["path"]) for row in rows}
    assert ways == {
        (size, *way) for size in (4, 65536) for way in (("cpp", "arena"), ("cpp", "tensor"), ("python", "tensor"))
    }
    for row in rows:
        assert row["bench"] == "allreduce"
        assert row["ranks"] == 2
        assert row["ours_us"] > 0
        assert row["bound_us"] > 0
        assert set(row["peers"]) == {"gloo_us", "openmpi_us"}
        assert all(time > 0 for time in row["peers"].values())


def test_messages_have_a_row_for_each_face_beside_both_peers(bench: Bench) -> None:
    """The programs check the answers; each of the lengths goes another way."""
    rows = rows_of(bench("messages", "--ranks", "2", "--sizes", "4,64KB,1MB", *QUICK, "-o", "json"))
    assert [(row["bytes"], row["face"]) for row in rows] == [
        (size, face) for size in (4, 1 << 16, 1 << 20) for face in ("cpp", "python")
    ]
    for row in rows:
        assert row["bench"] == "messages"
        assert row["ours_us"] > 0
        assert row["bound_us"] > 0
        assert set(row["peers"]) == {"gloo_us", "openmpi_us"}
    odd = bench("messages", "--ranks", "3")
    assert (odd.returncode, odd.stderr.splitlines()[0]) == (
        2,
        "gyre bench messages: 3 ranks do not make pairs; even numbers are needed",
    )


def test_moves_have_a_row_for_each_operation_beside_both_peers(bench: Bench) -> None:
    """The programs check the answers."""
    rows = rows_of(bench("moves", "--ranks", "2", "--sizes", "1KB,1MB", *QUICK, "-o", "json"))
    assert [(row["operation"], row["bytes"], row["face"]) for row in rows] == [
        (operation, size, face)
        for operation in ("allgather", "alltoall", "broadcast")
        for size in (1 << 10, 1 << 20)
        for face in ("cpp", "python")
    ]
    for row in rows:
        assert row["bench"] == "moves"
        assert row["ours_us"] > 0
        assert row["bound_us"] > 0
        assert set(row["peers"]) == {"gloo_us", "openmpi_us"}


def test_parameter_servers_have_a_row_beside_gloo_and_allreduce(bench: Bench) -> None:
    """The programs check the averages."""
    done = bench("ps", "--workers", "1,2", "--servers", "2", "--bytes", "300KB", *QUICK, "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["workers"], row["servers"]) for row in rows] == [(1, 2), (2, 2)]
    for row in rows:
        assert (row["bench"], row["architecture"], row["hosts"], row["bytes"]) == ("ps", "one host", 1, 300 << 10)
        assert row["ranks"] == row["workers"] + row["servers"]
        assert row["ours_us"] > 0
        assert row["other_memory_us"] > 0
        assert row["bound_us"] > 0
        assert row["allreduce_us"] > 0
        assert row["server_ns_per_byte"] > 0
        assert row["peers"]["gloo_us"] > 0


@pytest.mark.needs_root
@pytest.mark.needs_programs("ip", "ethtool")
def test_parameter_servers_are_swept_over_hosts_beside_the_models_predictions(bench: Bench) -> None:
    sweep = ["--workers", "2", "--servers", "1,3", "--rate", "1gbit", "--bytes", "256KB", "--block", "32KB"]
    done = bench("ps", *sweep, *QUICK, "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    # Three servers find no room on two workers' hosts.
    places = [(row["architecture"], row["servers"], row["hosts"]) for row in rows]
    assert places == [("allreduce", 0, 2), ("dedicated", 1, 3), ("dedicated", 3, 5), ("colocated", 1, 2)]
    for row in rows:
        assert row["ours_us"] > 0
        assert 0 < row["bound_us"] <= row["predicted_us"]
        # Headers come on top, and the frames of joining.
        for role, sent in row["sent_bytes"].items():
            predicted = row["predicted_sent_bytes"][role]
            assert predicted <= 1.01 * sent < 2 * predicted or predicted == sent == 0, row
    by_place = {(row["architecture"], row["servers"]): row for row in rows}
    # The server's link carries both workers' gradients: 8 blocks, and the last one's answers.
    assert by_place["dedicated", 1]["bound_us"] == pytest.approx(2 * (256 << 10) * 8 / 1000, rel=1e-3)
    assert by_place["dedicated", 1]["predicted_us"] > 9 / 8 * by_place["dedicated", 1]["bound_us"]


@pytest.mark.needs_root
@pytest.mark.needs_programs("ip", "ethtool")
def test_rows_of_a_table_travel_alone(bench: Bench) -> None:
    table = ["--table-rows", "20000", "--columns", "64", "--step-rows", "200"]
    done = bench("ps", *table, "--workers", "2", "--servers", "1", "--rate", "1gbit", *QUICK, "-o", "json")
    assert done.returncode == 0, done.stderr
    rows, dense = json.loads(done.stdout)
    assert rows["bytes"] == 200 * (64 * 4 + 4)
    assert dense["bytes"] == 20000 * 64 * 4
    assert rows["dense_us"] == dense["ours_us"] > 0
    # A worker pushes its rows, and pulls those of both (a few are the same); requests and headers come on top.
    assert rows["bytes"] <= rows["sent_bytes"]["worker"] <= 1.1 * rows["bytes"]
    assert 3.9 * rows["bytes"] <= rows["sent_bytes"]["server"] <= 1.1 * 4 * rows["bytes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--table-rows", "9", "--step-rows", "10"],
            "--step-rows is '10'; numbers from 1 to 9, separated by commas, are needed",
        ),
        (["--columns", "3"], "--columns and --step-rows are about a table, which --table-rows makes"),
        (["--workers", "0"], "--workers is '0'; numbers from 1 to 64, separated by commas, are needed"),
        (["--servers", "x"], "--servers is 'x'; numbers from 1 to 64, separated by commas, are needed"),
        (["--bytes", "6"], "--bytes is '6'; a multiple of 4 up to 4 GB is needed"),
        (["--block", "2"], "--block is '2'; a multiple of 4 up to 4 GB is needed"),
        (["--rate", "100mbit,fast"], "--rate has 'fast'; rates such as 100mbit or 1gbit are needed"),
        (["--placements", "dedicated"], "--placements is about hosts; --rate makes them"),
        (["--rate", "1gbit", "--placements", "both"], "--placements has 'both'; there are: dedicated, colocated"),
        (
            ["--rate", "1gbit", "--workers", "2", "--servers", "4", "--placements", "colocated"],
            "there are more colocated servers than workers, on whose hosts they are: none can be measured",
        ),
        (["--seconds", "-1"], "--seconds is -1; 0 (each figure once) to 60 are possible"),
        (["--tensorflow", "/bin/false"], "--tensorflow /bin/false is not a Python that has TensorFlow"),
        (["--rate", "1gbit", "--tensorflow", "python3"], "--tensorflow is measured on one host, without --rate"),
    ],
)
def test_parameter_servers_that_cannot_be_are_refused(bench: Bench, arguments: list[str], message: str) -> None:
    done = bench("ps", *arguments)
    assert (done.returncode, done.stderr) == (2, f"gyre bench ps: {message}\nSee `gyre bench ps --help`.\n")


def test_a_peer_that_is_missing_costs_its_column_and_one_line(bench: Bench, tmp_path: Path) -> None:
    """Nobody should have to install Open MPI to see the rest."""
    file = tmp_path / "rows.json"
    done = bench(
        "allreduce", "--ranks", "2", "--sizes", "4", "--faces", "cpp", *QUICK, "--json", str(file), PATH="/nowhere"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "gyre bench allreduce: Open MPI is left out: there is no mpirun in PATH\n"
    rows = json.loads(file.read_text())
    assert [set(row["peers"]) for row in rows] == [{"gloo_us"}] * 2
    assert done.stdout == table(rows) + "\n"
    assert done.stdout.splitlines()[1].split("  ")[-1].strip().endswith("%")


def test_exchange_has_both_faces_and_every_fusion_limit(bench: Bench) -> None:
    done = bench("exchange", "cifar10", "--ranks", "2", "--fusion", "0,1MB", *QUICK, "-o", "json")
    rows = rows_of(done)
    ways = {(row["fusion_bytes"], row["face"], row["path"], row.get("zero_grad")) for row in rows}
    of_each = {
        ("cpp", "arena", None),
        ("cpp", "tensor", None),
        ("python", "arena", "none"),
        ("python", "arena", "zeros"),
    }
    assert ways == {(fusion, *way) for fusion in (0, 1 << 20) for way in of_each}
    assert all(row["bytes"] == 4 * 1250858 and row["model"] == "cifar10" for row in rows)
    # The gradients once, and the mailboxes.
    for row in rows:
        if row["face"] == "python":
            assert row["bytes"] < row["memory_bytes"] <= row["bytes"] + (64 << 20)
    assert "Horovod is not measured" in done.stderr


def test_step_tells_what_the_exchange_adds(bench: Bench) -> None:
    done = bench("step", "cifar10", "--ranks", "2", "--batch", "2", *QUICK, "-o", "json")
    rows = rows_of(done)
    ways = [(row["via"], row["face"], row["path"]) for row in rows]
    assert ways == [("ddp", "python", "arena"), ("hvd", "python", "arena"), ("cpp", "cpp", "arena")]
    for row in rows:
        assert row["alone_us"] > 0
        # Medians of the rounds' differences, which are less than whole steps.
        assert row["ours_us"] < row["together_us"]
        assert row["peers"]["gloo_us"] < row["peers_together_us"]["gloo_us"]
        assert not row["bucket_views"]
        assert (row["batch"], row["image_size"], row["bytes"]) == (2, 32, 4 * 1250858)


def test_what_a_step_exposes_is_taken_round_by_round() -> None:
    # A machine that is slower for a while: the medians' difference would be 80.
    rounds = [(100.0, 110.0), (100.0, 180.0), (500.0, 520.0)]
    costs = [{"alone": Cost(alone, 2 * alone), "ddp": Cost(ddp, 3 * ddp)} for alone, ddp in rounds]
    assert added(costs, "ddp", lambda cost: cost.time_us) == 20
    assert added(costs, "ddp", lambda cost: cost.processor_us) == 340


def test_step_tells_what_ways_without_an_exchange_cost_and_takes_views_of_ddps_buckets(
    bench: Bench,
) -> None:
    more = ["--via", "meet,ddp-idle,ddp", "--bucket-views"]
    rows = rows_of(bench("step", "cifar10", "--ranks", "2", "--batch", "2", *more, *QUICK, "-o", "json"))
    assert [(row["via"], row["bucket_views"]) for row in rows] == [("ddp", True), ("meet", True), ("ddp-idle", True)]
    assert all(row["ours_us"] < row["together_us"] for row in rows)
    assert [("beyond_idle_us" in row, "peers_beyond_idle_us" in row) for row in rows] == [
        (True, True),
        *[(False, False)] * 2,
    ]


# The largest take half a minute each.
SMALLER_MODELS = ("cosmoflow", "resnet50")


@pytest.mark.parametrize("model", [name for name in MODELS if name != "cifar10"] if is_long() else SMALLER_MODELS)
def test_every_model_trains_through_cpp_with_the_parameters_it_has_in_python(model: str, bench: Bench) -> None:
    command = ["step", model, "--ranks", "2", "--via", "cpp", "--batch", "2", "--image-size", "32"]
    (row,) = rows_of(bench(*command, *QUICK, "-o", "json"))
    spec = MODELS[model]
    with torch.device("meta"):
        network = spec.make(32, spec.step_outputs or spec.outputs)
    assert row["bytes"] == 4 * sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.needs_root
@pytest.mark.needs_programs("ip", "ethtool")
def test_between_hosts_the_bytes_are_counted_and_the_bound_is_the_wire(bench: Bench) -> None:
    """The hosts are real ones as far as the network is concerned; see tests/cluster/hosts_test.py."""
    command = ["allreduce", "--hosts", "2", "--rate", "1gbit", "--sizes", "64KB", "--faces", "cpp"]
    rows = rows_of(bench(*command, *QUICK, "-o", "json"), hosts=2)
    ways = [(row["ranks"], row["rate"], row["path"], row.get("tls", False)) for row in rows]
    assert ways == [(2, "1gbit", path, tls) for tls in (False, True) for path in ("arena", "tensor")]
    for row in rows:
        assert set(row["peers"]) == {"gloo_us"}
        assert row["sent_bound_bytes"] == 65536
        assert 65536 < row["sent_bytes"] <= 1.01 * 65536
        assert row["bound_us"] == pytest.approx(65536 * 8 / 1e9 * 1e6)


def test_hosts_need_a_checkout(bench: Bench) -> None:
    """The package alone cannot make them."""
    done = bench("allreduce", "--hosts", "2", "--sizes", "4", PYTHONPATH=str(PACKAGE))
    assert done.returncode == 2
    assert "several hosts on one machine are made by a checkout's tools/hosts.py" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["exchange", "alexnet"],
            "there is no model 'alexnet'; there are: resnet50, resnet101, vgg16, cifar10, cosmoflow",
        ),
        (["exchange", "--ranks", "0"], "--ranks is '0'; numbers from 1 to 256, separated by commas, are needed"),
        (["allreduce", "--ranks", "two"], "--ranks is 'two'; numbers from 1 to 256, separated by commas, are needed"),
        (["allreduce", "--hosts", "2", "--ranks", "3"], "--ranks 3 cannot be divided over --hosts 2"),
        (["step", "--hosts", "2", "--rate", "fast"], "--rate is 'fast'; a rate such as 100mbit or 1gbit is needed"),
        (["step", "cifar10", "--batch", "0"], "--batch is 0; 1 to"),
        (["step", "cifar10", "--image-size", "0"], "--image-size is 0; cifar10 takes"),
        (["allreduce", "--sizes", "6"], "--sizes is '6'; multiples of 4 up to 4 GB are needed"),
        (["allreduce", "--sizes", "4XB"], "--sizes has '4XB'; sizes such as 4, 64KB or 16MB are needed"),
        (["allreduce", "--faces", "java"], "--faces has 'java'; there are: cpp, python"),
        (["allreduce", "--seconds", "61"], "--seconds is 61; 0 (each figure once) to 60 are possible"),
        (["step", "--via", "ddp,mpi"], "--via has 'mpi'; there are: ddp, hvd, cpp"),
        (["step", "vgg16", "--image-size", "16"], "--image-size is 16; vgg16 takes 32 to 1024"),
        (["exchange", "--json", "/proc/rows.json"], "--json /proc/rows.json: its folder cannot be written: "),
        (["exchange", "--json", "no/such/folder.json"], "--json no/such/folder.json: its folder cannot be written: "),
    ],
)
def test_what_cannot_be_is_told_at_once(bench: Bench, arguments: list[str], message: str) -> None:
    done = bench(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"gyre bench {arguments[0]}: {message}")
    assert lines[1] == f"See `gyre bench {arguments[0]} --help`."


def test_an_unknown_verb_is_told_and_so_is_a_python_without_gyre(bench: Bench) -> None:
    unknown = bench("allreduec")
    assert unknown.returncode == 2
    assert "unknown command 'allreduec'; did you mean 'allreduce'?" in unknown.stderr
    missing = bench("--help", GYRE_PYTHON="/no/python")
    assert missing.returncode == 2
    assert "/no/python" in missing.stderr


def test_an_interrupted_run_leaves_neither_processes_nor_files(gyre: Path, tmp_path: Path, scratch: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text("what was there before")
    command = [str(gyre), "bench", "exchange", "cifar10", "--ranks", "2", "--seconds", "60", "--json", str(file)]
    job = Job(command, tmp_path, environment(scratch), timeout=LONGEST_SECONDS)
    try:
        wait_until("a rank runs", lambda: any("gyre-bench-rank exchange" in line for line in job.processes()), 120)
        job.process.send_signal(signal.SIGTERM)
        assert job.wait() == 128 + signal.SIGTERM
        assert job.stderr.endswith("gyre bench exchange: interrupted; nothing was written\n")
        wait_until("all processes ended", lambda: job.processes() == [])
        assert file.read_text() == "what was there before"
        assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".rows")) == []
    finally:
        job.end()


def test_a_program_that_fails_is_told_with_its_last_words(bench: Bench) -> None:
    done = bench(
        "allreduce", "--ranks", "2", "--sizes", "4", *QUICK, GYRE_FUSION_BYTES="ignored", GYRE_LOG_LEVEL="loud"
    )
    assert done.returncode == 1
    assert "ended with 1 and no result" in done.stderr
    assert "loud" in done.stderr


@pytest.mark.parametrize(
    ("name", "tensors", "elements"),
    [
        ("resnet50", 161, 25_557_032),
        ("resnet101", 314, 44_549_160),
        ("vgg16", 32, 138_357_544),
        ("cifar10", 12, 1_250_858),
        ("cosmoflow", 16, 8_907_556),
    ],
)
def test_the_models_have_the_published_parameters(name: str, tensors: int, elements: int) -> None:
    shapes = tensor_list(name)
    assert len(shapes) == tensors
    assert sum(math.prod(shape) for _, shape in shapes) == elements
    assert shapes[0][1] == [MODELS[name].outputs]  # Backward begins at the last layer's bias.


def test_the_table_shows_what_is_missing_as_a_dash() -> None:
    row = {
        "bench": "exchange",
        "model": "m",
        "ranks": 2,
        "hosts": 1,
        "bytes": 4,
        "path": "arena",
    }
    shown = table([{**row, "face": "python", "ours_us": -20.0, "peers": {"gloo_us": 1500.0}, "bound_us": None}])
    cells = " ".join(shown.splitlines()[1].split())
    assert cells == "m, 4 B 2 1 arena python -20.0 us - 1.5 ms all - - - -"


def test_the_table_of_steps_has_the_whole_step_and_what_is_exposed_of_it() -> None:
    row = {"bench": "step", "model": "m", "batch": 1, "ranks": 2, "hosts": 1, "bytes": 4, "via": "ddp"}
    ours = {"together_us": 6e5, "alone_us": 5e5, "ours_us": 1e5, "processor_us": 2e3}
    gloo = {"peers_together_us": {"gloo_us": 9e5}, "peers": {"gloo_us": 4e5}, "peers_processor_us": {"gloo_us": 3e5}}
    cells = " ".join(table([{**row, **ours, **gloo}]).splitlines()[1].split())
    assert cells == ("m, 4 B, batch 1 2 1 ddp 600.0 ms 500.0 ms 100.0 ms 900.0 ms 400.0 ms 1.50 4.00 2.0 ms 300.0 ms")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["alreduce"], "gyre bench: unknown command 'alreduce'; did you mean 'allreduce'?"),
        (
            ["train"],
            "gyre bench: unknown command 'train'; there are: allreduce, messages, moves, exchange, step, ps, jobs, "
            "loader, stage, store",
        ),
        (["allreduce", "--sise", "4"], "gyre bench allreduce: unknown option --sise; did you mean --sizes?"),
        (["step", "--rank", "2"], "gyre bench step: unknown option --rank; did you mean --ranks?"),
        (["allreduce", "4"], "gyre bench allreduce: unexpected argument '4'"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(bench: Bench, arguments: list[str], message: str) -> None:
    done = bench(*arguments)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, message)


def test_jobs_tells_what_a_job_server_does_and_costs(bench: Bench, tmp_path: Path) -> None:
    rows = tmp_path / "jobs.json"
    few = ("--jobs", "6", "--nodes", "2", "--seconds", "0.1", "--followers", "10", "--idle-seconds", "0.5")
    done = bench("jobs", *few, "--queued", "3", "--json", str(rows))
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(rows.read_text())
    assert row["bench"] == "jobs"
    assert 0 < row["jobs_per_second"] < row["bound_jobs_per_second"]
    assert 0 < row["submit_us"] <= row["submit_p99_us"]
    assert 0 < row["queued_submit_us"] <= row["queued_submit_p99_us"]
    assert row["first_output_us"] > 0
    assert row["followers"] == 10
    assert row["peak_bytes"] < 100 << 20
    assert "6 jobs of 0.1 s, 2 nodes, 3 waiting" in done.stdout
    refused = bench("jobs", "--jobs", "0")
    assert refused.returncode == 2
    assert "--jobs is 0; 1 to" in refused.stderr


def test_loader_compares_with_a_bare_decoder_and_with_other_loaders(bench: Bench, tmp_path: Path) -> None:
    few = ("--images", "64", "--size", "64", "--seconds", "0.1", "--repeats", "1", "--threads", "1")
    done = bench("loader", "images", *few, "--json", str(tmp_path / "rows.json"))
    assert done.returncode == 0, done.stderr
    [row] = json.loads((tmp_path / "rows.json").read_text())
    assert row["ours_per_second"] > 0
    assert row["bound_per_second"] > 0
    assert row["peers_per_second"]["torch + Pillow"] > 0
    assert 0 < row["memory_bytes"] <= 1 << 30
    assert "JPEG in TFRecord" in done.stdout
    refused = bench("loader", "volume")
    assert refused.returncode == 2
    assert "there is no case 'volume'" in refused.stderr


def test_loader_reads_parquet_files_beside_pyarrow(bench: Bench) -> None:
    few = ("--images", "64", "--size", "64", "--seconds", "0.1", "--repeats", "1", "--threads", "1")
    done = bench("loader", "parquet", *few, "-o", "json")
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)
    assert row["ours_per_second"] > 0
    assert row["peers_per_second"]["pyarrow + Pillow"] > 0


def test_loader_reads_volumes_and_says_where_tensorflow_is_missing(bench: Bench) -> None:
    few = ("--volumes", "4", "--volume-size", "16", "--seconds", "0.1", "--repeats", "1", "--threads", "1")
    done = bench("loader", "volumes", "volumes-log", "volumes-plain", *few, "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["ours_per_second"] > 0 for row in rows] == [True] * 3
    assert all(row["peers_per_second"] == {"tf.data": None} for row in rows)
    assert "tf.data is not measured" in done.stderr
    refused = bench("loader", "volumes", "--volume-size", "33")
    assert "--volume-size is 33; 16, 32, 64, 128 are possible" in refused.stderr


def test_jobs_measures_plain_sbatch_as_well(bench: Bench) -> None:
    few = ("--jobs", "3", "--nodes", "1", "--seconds", "0.1", "--followers", "2", "--idle-seconds", "0")
    with tempfile.TemporaryDirectory(prefix="gyre-slurm-") as folder, slurm_cluster(Path(folder)) as environment:
        done = bench("jobs", *few, "-o", "json", SLURM_CONF=environment["SLURM_CONF"])
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["peers"]["sbatch"].keys() == {"jobs_per_second", "submit_us", "submit_p99_us", "first_output_us"}
    assert all(figure > 0 for figure in row["peers"]["sbatch"].values())
