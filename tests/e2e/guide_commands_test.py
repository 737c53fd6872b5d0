"""Every command that README and the guides print can be typed: its options exist, and it is run here as it is printed
(on less data, for fewer epochs, in a prepared folder), or by the test that is named below."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from guide_commands import PAGES, ROOT, Command, block_commands, inline_commands, simple_commands
from gyre.completion.tables import places
from job_server import JobServer

from gyre import completion

LONGEST_SECONDS = 300
# By the test that runs them: commands that need what only that test has, such as other hosts, Slurm, another launcher.
ELSEWHERE = {
    "tensorflow/example_test.py::test_the_example_trains_on_two_ranks": (
        "gyre run -n 4 -- python examples/keras_cifar10.py --data-dir cifar-10",
    ),
    "tensorflow/keras_2018_test.py::test_the_articles_script_runs_unchanged": (
        "gyre run --keras-2018 -n 4 -- python cifar10_cnn.py",
    ),
    "e2e/run_as_others_test.py::test_ranks_of_two_hosts_are_one_job": (
        "gyre run -H node1:4,node2:4 -- python train.py",
        "gyre run -np 6 -H node1:4,ada@node2:4 python train.py",
        "gyre run --hostfile hosts -p 2222 -i ~/.ssh/cluster python train.py",
    ),
    "e2e/run_as_others_test.py::test_two_launchers_make_one_job": (
        "gyre run --nnodes 2 --node-rank 0 --rdzv-endpoint node1:29500 --nproc-per-node 4 train.py",
        "gyre run --nnodes 2 --node-rank 1 --rdzv-endpoint node1:29500 --nproc-per-node 4 train.py",
    ),
    "cluster/params_over_hosts_test.py"
    "::test_servers_run_where_the_options_say_and_train_the_same_network_as_on_one_host": (
        "gyre run -H node1:4,node2:4 --servers 2 -- gyre-cifar10 --data-dir digits",
        "gyre run -H node1:4,node2:4 --servers 2 --server-hosts node3,node4 -- gyre-cifar10 --data-dir digits",
    ),
    "e2e/launchers_test.py::test_torchrun": (
        "GYRE_KEY_FILE=~/gyre.key torchrun --nnodes 2 --nproc-per-node 4 --rdzv-endpoint node1:29500 … train.py",
    ),
    "e2e/launchers_test.py::test_srun": ("GYRE_KEY_FILE=~/gyre.key srun -N2 -n8 python train.py",),
    "e2e/launchers_test.py::test_mpirun": (
        "mpirun -x GYRE_KEY_FILE=$HOME/gyre.key -x GYRE_RENDEZVOUS=tcp:node1:29600 -H node1:4,node2:4 python train.py",
    ),
    "e2e/launch_test.py::test_a_failure_ends_the_others_and_a_stop_ends_all": (
        "gyre launch job.json",
        "make-job | gyre launch --socket /run/user/1000/train.sock",
    ),
    "e2e/stdin_test.py::test_any_rank_can_be_given_the_terminal": (
        "gyre run -n 4 --stdin 1 -- python -m pdb train.py",
    ),
    "e2e/server_test.py::test_the_articles_job_goes_through_the_service_from_submission_to_download": (
        "gyre server &",
        "gyre agent --service tcp:10.0.0.1:7700 --key-file /etc/gyre/agents.key --node n1 --root /scratch/gyre",
    ),
    "e2e/job_shell_test.py::test_rank_and_node_choose_where_it_runs": (
        "gyre job shell train-1 3 -- nvidia-smi",
        "gyre job shell train-1 node-2 -- top",
    ),
    "e2e/job_shell_test.py::test_every_byte_passes_both_ways_and_a_full_output_does_not_hold_up_the_other": (
        "gyre job shell train-1 -- tar c checkpoints > checkpoints.tar",
    ),
    "e2e/job_shell_test.py::test_a_terminal_has_its_size_its_keys_and_job_control_and_is_put_back_at_the_end": (
        "gyre job shell train-1",
    ),
    "e2e/containers_test.py::test_a_private_registry_gives_its_image_to_whoever_has_the_password": (
        "gyre image pull job.json -c pool",
    ),
    "e2e/images_test.py::test_a_dockerfile_is_built_once_for_what_it_reads": (
        "gyre job submit job.json --code . -c pool",
    ),
    "e2e/page_hosts_test.py::test_the_page_of_a_job_on_two_hosts": (
        "gyre run -H node1:4,node2:4 --page --report job.html -- python train.py",
    ),
    "e2e/page_service_test.py::test_the_page_of_a_job_server": (
        "gyre page",
        "gyre page --server https://login:7710#FINGERPRINT --port 8100",
    ),
    "e2e/stage_stores_test.py::test_a_container_is_staged": (
        "gyre stage az://data/cifar10 --to /data/cifar10",
        "gyre stage az://data/cosmoflow --to /scratch/set --shard 0/4",
    ),
    "e2e/stage_test.py::test_all_files_below_an_index_page_arrive_and_are_not_read_again": (
        "gyre stage https://example.org/sets/digits/ --to /data/digits",
    ),
    "e2e/upload_test.py::test_what_goes_up_comes_back_and_goes_up_once": (
        "gyre stage /data/set --to az://data/set",
        "gyre stage /data/set --to s3://bucket/set --compress gzip",
    ),
    "e2e/upload_test.py::test_azcopys_words_and_encodings_go_up": (
        "gyre stage copy /data/set 'https://ACCOUNT.blob.core.windows.net/CONTAINER' --recursive --sas @sas.txt",
    ),
    "e2e/run_staging_test.py::test_no_secret_of_the_source_is_seen_anywhere": (
        "gyre run -n 4 --stage az://data/digits --stage-dir /scratch -- gyre-cifar10 --data-dir '{stage-dir}'",
    ),
    "e2e/store_test.py::test_two_nodes_read_the_source_once_and_again_never": (
        "gyre store serve --store-dir /scratch/store --job cosmoflow --key-file key --node 0 "
        "--nodes 0=tcp:10.0.0.1:7000,1=tcp:10.0.0.2:7000 az://data/cosmoflow",
    ),
    "e2e/stage_stores_test.py::test_azcopys_own_command_line": (
        "gyre stage copy 'https://ACCOUNT.blob.core.windows.net/CONTAINER/set' /data --recursive --decompress "
        "--overwrite false --include-pattern '*_000.tfrecord.gz;*_001.tfrecord.gz'",
    ),
    "e2e/job_metrics_test.py::test_the_ranks_and_curves_of_a_job_are_a_commands_away": (
        "gyre top JOB",
        "gyre job report JOB > job.html",
        "gyre job tensorboard JOB --to curves",
        "gyre job download JOB --to DIR",
    ),
    "e2e/environments_test.py::test_python_pip_and_programs_of_a_job_are_those_of_its_environment": (
        "gyre job submit --code . --requirements requirements.txt -- python train.py",
        "gyre run --cluster pool --requirements requirements.txt -n 8 -- python train.py",
    ),
    "e2e/run_cluster_test.py::test_ranks_of_two_nodes_have_the_folder_and_their_code_is_the_commands": (
        "gyre run --cluster pool --nnodes 2 -n 8 -- python3 train.py",
    ),
    "e2e/slurm_driver_test.py::test_the_articles_job_runs_unchanged_on_slurm": (
        "gyre job run job.json --cluster slurm.json",
    ),
    "e2e/ssh_driver_test.py::test_a_cluster_needs_confirmed_keys_and_shows_them": (
        "gyre cluster create lab --driver ssh --driver-option hosts=node1,node2 --target 2",
        "gyre cluster create lab --driver ssh --driver-option hosts=node1,node2 --target 2 "
        "--driver-option 'host_keys=node1 SHA256:Zc5…, node2 SHA256:9fQ…'",
        "gyre job submit --cluster lab --nodes 2 --follow -- ./my-program",
    ),
    "e2e/cpp_test.py::test_gyre_config_of_a_checkout_leads_to_its_build": (
        'cmake -S . -B build -Dgyre_DIR="$(gyre-config --cmake-dir)"',
        "cmake --build build",
    ),
    "e2e/cpp_test.py::test_both_programs_build_with_find_package": (
        "cmake --install build/release --prefix /opt/gyre",
        "cmake -S . -B build -DCMAKE_PREFIX_PATH=/opt/gyre",
    ),
    "e2e/cpp_test.py::test_a_program_builds_with_pkg_config": (
        "g++ -std=c++20 average.cc -o average $(pkg-config --cflags --libs gyre) "
        "-Wl,-rpath,$(pkg-config --variable=libdir gyre)",
    ),
    "e2e/checkout_test.py::test_torch_knows_the_backend_after_a_build": ("./dev build",),
    "e2e/wheel_test.py::test_ddp_over_gyre_with_gyre_run": ("./dev wheel", "pip install out/wheel/gyre_train-*.whl"),
    "e2e/bench_test.py::test_allreduce_has_a_row_for_every_way_in_beside_both_peers": ("./dev bench all",),
    "e2e/bench_test.py::test_the_table_shows_what_is_missing_as_a_dash": ("./dev bench report",),
    "e2e/guide_commands_test.py::test_every_command_is_run_somewhere": ("./dev test",),
}
# What is replaced in a page's commands before they are run here: less data, fewer epochs, a smaller network.
SHORTER = {
    "backups.md": [("/backup/", "{share}/")],
    "README.md": [("--epochs 12", "--epochs 1"), ("examples/01_digits.py", "examples/01_digits.py --epochs 1")],
    "debugging.md": [("1_000_000", "1_000")],
    "jobs.md": [
        ("/data/share", "{share}"),
        ("/backup/", "{share}/"),
        ("--target 4", "--target 2 --containers-on-host"),
    ],
    "parameter_servers.md": [("--epochs 30", "--epochs 1"), ("--epochs 3 ", "--epochs 1 ")],
    "run.md": [("--nproc-per-node 4", "--nproc-per-node 2")],
    "staging.md": [("/mnt/share/set", "{share}/set"), ("/scratch", "scratch")],
    "workloads.md": [
        ("--epochs 30", "--epochs 1"),
        ("--train 1024 --validation 256", "--train 16 --validation 4"),
        ("--lr 0.01 --warmup-epochs 0", "--lr 0.01 --warmup-epochs 0 --epochs 1 --conv-size 2"),
        ("--train 4096 --validation 512", "--train 64 --validation 16 --classes 10"),
        ("--epochs 10", "--epochs 1 --batch-size 16 --depth 14"),
        ("--synthetic --batch-size 32", "--synthetic --batch-size 2 --depth 14 --image-size 32"),
        ("-n 4 -- gyre score", "-n 2 -- gyre score"),
        (
            "--validation-share 0.1",
            "--validation-share 0.1 --epochs 1 --warmup-epochs 0 --batch-size 2 --depth 14 --image-size 32",
        ),
    ],
}

TRAIN = """
import sys
import gyre.torch as hvd
import torch
hvd.init()
print("rank", hvd.rank(), "has the sum", hvd.allreduce(torch.ones(1), op=hvd.Sum).item(), sys.argv[1:])
if hvd.rank() == 0 and not sys.stdin.isatty():
    print("read", sys.stdin.readline())
"""
JOB_TRAIN = "import os, sys\nprint('rate', os.environ.get('LR'), *sys.argv[1:])\nopen('model.pt', 'w').close()\n"


@pytest.fixture(scope="module")
def known_options() -> dict[str, set[str]]:
    """By program and verb."""
    return {
        place.name: {name for option in place.options for name in option.names} for place in places(completion.parser())
    }


def all_commands() -> list[Command]:
    return [command for page in PAGES for command in block_commands(page)]


def run_elsewhere() -> set[str]:
    return {text for texts in ELSEWHERE.values() for text in texts}


def commands_to_run() -> list[Command]:
    elsewhere = run_elsewhere()
    return [command for command in all_commands() if not command.is_form and command.text not in elsewhere]


def test_every_option_of_gyre_exists(known_options: dict[str, set[str]]) -> None:
    known_options["gyre run"].add(
        "-np"
    )  # horovodrun's, which stands in no table because it is two options to a parser.
    unknown = []
    looked_up = 0
    for page in PAGES:
        for command in (*block_commands(page), *inline_commands(page)):
            for words in simple_commands(command.text):
                name, *rest = words
                while rest and f"{name} {rest[0]}" in known_options:
                    name = f"{name} {rest.pop(0)}"
                for word in rest if name in known_options else ():
                    if word.startswith("-"):
                        looked_up += 1
                        if word.partition("=")[0] not in known_options[name]:
                            unknown.append(f"{command.place}: {name} has no {word}")
    assert looked_up > 150  # They were found at all.
    assert not unknown


def test_every_command_is_run_somewhere() -> None:
    """Those that other tests run are still printed, and the tests are still there."""
    assert run_elsewhere() <= {command.text for command in all_commands()}
    for place in ELSEWHERE:
        file, _, test = place.partition("::")
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), place
    assert len([command for command in all_commands() if not command.is_form]) > 60


def shortened(command: Command, share: Path) -> str:
    text = command.text
    for old, new in SHORTER.get(command.page, ()):
        text = text.replace(old, new.format(share=share))
    return text


def prepare(folder: Path, page: str, share: Path, make: Callable[[str], None]) -> None:
    """What the page's commands work on."""
    (folder / "train.py").write_text(TRAIN)
    (folder / "answers.txt").write_text("an answer\n")
    if page == "README.md":  # The other pages do not take place in a checkout.
        (folder / ".venv").symlink_to(Path(sys.executable).parent.parent)
        (folder / "examples").symlink_to(ROOT / "examples")
    for name in (".local/share/bash-completion/completions", ".zfunc", ".config/fish/completions"):
        (folder.parent / name).mkdir(parents=True)  # The home folder.
    if page in ("jobs.md", "from_batch_ai.md"):
        job = re.search(r"```json\n(\{\n  \"properties\".*?)```", (ROOT / "docs/guide/jobs.md").read_text(), re.DOTALL)
        assert job
        (folder / "job.json").write_text(job.group(1))
        (folder / "train.py").write_text(JOB_TRAIN)
        (share / "train.py").write_text(JOB_TRAIN)
        (share / "digits").mkdir()
    if page == "staging.md":
        (share / "set").mkdir()
        (share / "set/part").write_text("data")
    if page == "parameter_servers.md":
        make("-m gyre.datasets digits --out digits")
    if page == "workloads.md":
        make(
            "-m gyre.datasets imagenet --out satellite --layout folder --size 64 --classes 3 --train 24 --validation 6"
        )
        (folder / "satellite/validation").rename(folder / "satellite/test")
        shutil.copytree(folder / "satellite/train", folder / "photos")
        shutil.copy(next((folder / "photos").rglob("*.JPEG")), folder / "photo.jpg")


@pytest.mark.parametrize("page", sorted({command.page for command in commands_to_run()}))
def test_the_commands_of_a_page_do_what_they_say(page: str, gyre: Path, job_server: JobServer, tmp_path: Path) -> None:
    variables = {
        **os.environ,
        **job_server.environment,
        "PATH": f"{Path(sys.executable).parent}:{gyre.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
        "GYRE_PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
        "WANDB_API_KEY": "not one",
    }

    folder = tmp_path / "project"  # Apart from the home folder.
    folder.mkdir()

    def run(command: str) -> None:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=ROOT if command.startswith("./dev ") else folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    prepare(folder, page, job_server.share, lambda words: run(f"{sys.executable} {words}"))
    if page in ("jobs.md", "backups.md"):
        job_server.start()
    setting = ""  # An assignment or export before the command that uses it.
    for command in commands_to_run():
        if command.page != page:
            continue
        text = shortened(command, job_server.share)
        if re.match(r"[A-Z]+='|export ", text):
            setting = text
            continue
        run(f"{setting}\n{text}" if setting else text)


def test_the_whole_script_of_the_readme_trains(start_job, tmp_path: Path) -> None:
    """As it stands, on one rank and on three."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(next(block for block in blocks if "def main():" in block))
    for ranks in (1, 3):
        job = start_job(
            "-n", str(ranks), "--", sys.executable, "train.py", env={"PYTHONPATH": str(ROOT / "python")}, timeout=240
        )  # fmt: skip
        assert job.wait() == 0, job.stderr
        for rank in range(ranks):
            assert re.search(rf"rank {rank} of {ranks}: the last loss is \d\.\d\d\d", job.stdout)
