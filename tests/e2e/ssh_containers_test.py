"""Jobs in containers on hosts that a job server reaches by ssh: real sshd and podman, and a private registry."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clean_tree
import pytest
from article_job import ARTICLE, SCRIPTS, make_scripts_folder
from docker_daemon import DockerHosts, why_no_docker
from effort import is_long
from images import Storage, busybox_files, why_no_podman
from job_server import JobServer
from machine import free_port
from registry import PASSWORD, USER, registry
from running_job import wait_until
from ssh_cluster import SshCluster, ssh_cluster

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("sshd", "ssh", "ssh-keygen", "podman", "runc")]

ROOT = Path(__file__).resolve().parents[2]
TORCH = next(line for line in (ROOT / "requirements.txt").read_text().splitlines() if line.startswith("torch=="))
SHARE = "$AZ_BATCHAI_MOUNT_ROOT/external"
BASHRC = "case $- in *i*) ;; *) return ;; esac\nexport WORLD=bashrc PATH=/opt/world:$PATH\n"
MPI_PACKAGES = ("openmpi-bin", "openmpi-common", "libopenmpi3", "libpmix2", "libhwloc15", "libhwloc-plugins")


@dataclass
class Lab:
    """Two hosts that share this machine's podman, or have a docker each, and a server whose cluster `lab` they are."""

    hosts: SshCluster
    server: JobServer
    storage: Storage | DockerHosts  # Of the hosts.
    maker: Storage  # Of images for the registry.
    registry: str
    certificate: Path

    def push(self, image: str) -> bool:
        return self.maker.push(image, f"{self.registry}/{image}", f"{USER}:{PASSWORD}", self.certificate)

    def container(self, image: str, **settings: Any) -> dict[str, Any]:
        credentials = {"username": USER, "password": PASSWORD}
        source = {"serverUrl": self.registry, "image": image, "credentials": credentials}
        return {"imageSourceRegistry": source, **settings}

    def add_cluster(self, name: str, mounts: dict[str, str] | None = None) -> None:
        file = write_cluster(self.hosts, self.server, mounts or {})
        self.server.ok("cluster", "create", name, "-f", str(file), "--target", "2")

    def add_scripts(self, preparation: str, training: str) -> Path:
        """Returns their folder."""
        make_scripts_folder(self.server.share)
        folder = self.server.share / SCRIPTS
        for name, text in (("job-prep.sh", preparation), ("run-cifar10.sh", training)):
            (folder / name).write_text(f"#!/bin/bash\n{text}")
            (folder / name).chmod(0o755)
        return folder

    def submit(self, name: str, line: str, **more: Any) -> None:
        """The line is a rank on each host."""
        properties = {
            "nodeCount": len(self.hosts.names),
            "gyreSettings": {"program": ["sh", "-c", line]},
            "stdOutErrPathPrefix": SHARE,
            "containerSettings": self.container("team/train:1"),
            **more,
        }
        file = self.server.job_file(properties, f"{name}.json")
        self.server.ok("job", "submit", str(file), "--cluster", "lab", "--name", name)

    def roots(self) -> list[Path]:
        return [path for host in self.hosts.names for path in self.hosts.local(host).glob("gyre-*")]

    def expect_nothing_left(self) -> None:
        wait_until("the hosts are clean", lambda: self.roots() == [])
        wait_until("no container is left", lambda: self.storage.containers() == [])


@pytest.fixture(scope="module", params=["podman", "docker"])
def lab(request: pytest.FixtureRequest, gyre: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A short folder that the jobs' user may enter. The hosts have a storage without any image, or a docker each; what
    the registry has was made in another storage."""
    reason = why_no_podman()
    assert not reason, reason
    is_docker = request.param == "docker"
    if is_docker and (reason := why_no_docker()):
        pytest.skip(reason)  # ./dev setup does not install it, because its service changes the machine's network.
    folder = Path(tempfile.mkdtemp(prefix="gyre-ssh-"))
    folder.chmod(0o755)
    place = tmp_path_factory.mktemp("registry")
    server = JobServer(gyre, tmp_path_factory.mktemp("server"))
    own = folder / "hosts" / "local"
    storages: list[Storage | DockerHosts] = [Storage(folder / "maker")]
    try:
        with registry(place) as (name, certificate):
            if not is_docker:
                storages.append(Storage(folder / "containers"))
            settings = DockerHosts.settings_at(own) if is_docker else storages[-1].settings
            variables = {**settings, "SSL_CERT_FILE": str(certificate)}
            with ssh_cluster(folder / "hosts", hosts=2, variables=variables) as hosts:
                if is_docker:
                    processes = {hosts.servers[host].pid: hosts.local(host) for host in hosts.names}
                    storages.append(DockerHosts(own, processes))
                maker, storage = storages
                assert isinstance(maker, Storage)
                lab = Lab(hosts, server, storage, maker, name, certificate)
                maker.add("team/train:1", busybox_files({"etc/of-image": "made for a test\n"}))
                wait_until("the registry takes an image", lambda: lab.push("team/train:1"))
                server.environment["SSL_CERT_FILE"] = str(certificate)
                server.start()
                lab.add_cluster("lab")
                yield lab
                server.close()
    finally:
        server.close()
        for each in storages:
            each.remove()
        shutil.rmtree(folder, ignore_errors=True)


def write_cluster(hosts: SshCluster, server: JobServer, mounts: dict[str, str]) -> Path:
    settings = {
        "driver": "ssh",
        "driverOptions": hosts.driver_options(),
        "mounts": {"external": str(server.share), **mounts},
    }
    file = server.tmp_path / "cluster.json"
    file.write_text(json.dumps({"properties": {"gyreSettings": settings}}))
    return file


def test_a_job_runs_in_a_container_on_each_host_and_leaves_nothing(lab: Lab) -> None:
    """The image comes from a private registry, by its digest, and the container's root is the job's account outside."""
    line = f'echo "$(cat /etc/of-image /prepared)"; echo x > "{SHARE}/of-$AZ_BATCH_NODE_ID"'
    lab.submit("inside", line, jobPreparation={"commandLine": "id -u > /prepared && chown 7 /prepared"})
    code = lab.server.verb("job", "wait", "inside").returncode
    events, logs = lab.server.ok("job", "events", "inside"), lab.server.ok("job", "logs", "inside")
    assert code == 0, events + logs
    shown = lab.server.json("job", "show", "inside")["properties"]["containerSettings"]["imageSourceRegistry"]
    place = f"the job runs in a container of {lab.registry}/team/train:1@{shown['digest']}"
    assert events.count(place) == 2, events
    made = list(lab.server.share.glob("of-*"))
    assert [file.stat().st_uid == 0 for file in made] == [False, False]
    assert logs.count("made for a test") == 2, logs
    assert logs.count("] 0\n") == 2, logs
    assert PASSWORD not in events + logs
    assert lab.storage.credentials() == []
    lab.expect_nothing_left()


def test_a_container_goes_with_its_job_however_that_ends(lab: Lab) -> None:
    """It is cancelled; or the supervisor of a host is asked to end, as for a node that is given up."""
    for name in ("cancelled", "given-up"):
        lab.submit(name, f'mkdir -p "{SHARE}/{name}-$AZ_BATCH_NODE_ID"; sleep 1000')
        wait_until("the job runs", lambda name=name: len(list(lab.server.share.glob(f"{name}-*"))) == 2)  # type: ignore[misc]
        assert len(lab.storage.containers()) == 2
        if name == "given-up":
            supervisor = next(root for root in lab.roots()) / "supervisor.pid"
            os.kill(int(supervisor.read_text()), signal.SIGTERM)
            wait_until("its container is gone", lambda: len(lab.storage.containers()) < 2)
        lab.server.ok("job", "stop", name)
        assert lab.server.verb("job", "wait", name).returncode != 0
        lab.expect_nothing_left()


def test_a_job_whose_container_is_killed_says_so(lab: Lab) -> None:
    """Of one node: with two, the launcher on the other one may be the first to notice."""
    lab.submit("killed", f'mkdir -p "{SHARE}/killed"; sleep 1000', nodeCount=1)
    wait_until("the job runs", (lab.server.share / "killed").exists)
    (container,) = lab.storage.containers()
    lab.storage.kill(container)
    wait_until("it says so", lambda: "the job's container on node" in lab.server.ok("job", "events", "killed"))
    lab.server.ok("job", "stop", "killed")
    lab.server.verb("job", "wait", "killed")
    lab.expect_nothing_left()


PREPARATION = """set -e
[ "$(id -u)" = 0 ]
echo "prepared by root on $AZ_BATCH_NODE_ID" > /usr/lib/prepared
chown 7:7 /usr/lib/prepared
"""
# The line of the article's script, with the options by which it chooses its network.
TRAINING = """
hosts=${AZ_BATCH_HOST_LIST//,/:$PROCESSES_PER_NODE,}:$PROCESSES_PER_NODE
mpirun -np $((NUM_NODES * PROCESSES_PER_NODE)) -H "$hosts" --oversubscribe -bind-to none -map-by slot \
  --allow-run-as-root -x HOROVOD_TIMELINE -x PATH -x WORLD -mca pml ob1 -mca btl ^openib \
  cifar10 --data-dir "$AZ_BATCHAI_INPUT_DATASET" --model-dir "$AZ_BATCHAI_OUTPUT_MODEL" \
  --batch-size 64 --epochs 5 --verbose 1
"""
TRAINER = """#!/bin/bash
rank=$OMPI_COMM_WORLD_RANK
echo "rank $rank of $OMPI_COMM_WORLD_SIZE with $WORLD, $(cat /usr/lib/prepared), $(ls "$2")"
[ "$rank" != 0 ] || { echo weights > "$4/checkpoint" && echo "[]" > "$HOROVOD_TIMELINE"; }
"""


TRAINS = (
    "-x PYTHONPATH -x OMP_NUM_THREADS -x GYRE_RENDEZVOUS -x GYRE_KEY_FILE "
    'python3 "$AZ_BATCHAI_INPUT_SCRIPTS/cifar10.py" --'
)
# What docs/guide/launchers.md asks for, for ranks of mpirun on several hosts.
MEETING = f"""exec 2>&1
export GYRE_RENDEZVOUS=tcp:$AZ_BATCHAI_JOB_MASTER_NODE_IP:{free_port()} GYRE_KEY_FILE=$AZ_BATCHAI_OUTPUT_MODEL/key
(umask 077 && head -c 32 /dev/urandom > "$GYRE_KEY_FILE")
"""


def test_the_articles_job_runs_in_an_image_of_a_private_registry_on_two_hosts(lab: Lab, tmp_path: Path) -> None:
    """Its preparation is root in the container, its image has its world in ~/.bashrc, and its line calls mpirun."""
    world = {
        "root/.bashrc": BASHRC,
        "opt/world/mpirun": '#!/bin/bash\nexec mpirun.openmpi "$@"\n',
        "opt/world/cifar10": TRAINER,
    }
    lab.maker.add("team/article:1", busybox_files(world, [Path("/bin/bash")], MPI_PACKAGES))
    lab.push("team/article:1")
    scripts = lab.add_scripts(PREPARATION, TRAINING)
    (scripts / "data/cifar-10-batches-py").mkdir(parents=True)
    (scripts / "data/cifar-10-batches-py/data_batch_1").touch()
    file = tmp_path / "job.json"
    file.write_text(articles_job_in(lab.container("team/article:1", readBashrc=True)))
    followed = lab.server.ok("job", "submit", str(file), "--cluster", "lab", "--name", "article", "--follow")
    said = sorted(line.split() for line in followed.splitlines())
    assert [" ".join(words[:-2]) for words in said] == [
        f"rank {rank} of 8 with bashrc, prepared by root on" for rank in range(8)
    ], followed
    assert {words[-1] for words in said} == {"data_batch_1"}
    placed = [words[-2] for words in said]
    assert len(set(placed[:4])) == len(set(placed[4:])) == 1
    assert placed[0] != placed[4]
    (checkpoint,) = scripts.glob("**/models/checkpoint")
    (timeline,) = scripts.glob("**/timelines/timeline.json")
    assert checkpoint.read_text() == "weights\n"
    assert checkpoint.stat().st_uid == timeline.stat().st_uid != 0
    lab.expect_nothing_left()


# What Gyre's extension module is linked with, which a wheel would bring.
LIBRARIES = "libdeflate0 libfmt9 libhwy1 libisal2 libjpeg62-turbo libpng16-16 libpugixml1v5 libspdlog1.10 libxxhash0"
INSTALLATION = f"""set -e
[ "$(id -u)" = 0 ]
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends {LIBRARIES}
LINKS
python3 -m pip --disable-pip-version-check install --quiet --break-system-packages {TORCH} numpy
"""
PYTHON_TRAINER = """
import pickle, sys
from pathlib import Path
import gyre.torch as hvd, numpy, torch
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
hvd.init()
torch.manual_seed(0)
torch.set_num_threads(1)

def read(name):
    batch = pickle.loads((Path(options["--data-dir"]) / name).read_bytes(), encoding="bytes")
    return torch.from_numpy(batch[b"data"]).float() / 255, torch.tensor(batch[b"labels"])

parts = [read(f"data_batch_{number}") for number in range(1, 6)]
images, labels = (torch.cat(tensors)[hvd.rank() :: hvd.size()] for tensors in zip(*parts))
model = torch.nn.Sequential(torch.nn.Linear(3072, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), 0.002), model.named_parameters())
for epoch in range(10 * int(options["--epochs"])):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
test_images, test_labels = read("test_batch")
right = hvd.allreduce((model(test_images).argmax(1) == test_labels).float().mean())
print(f"rank {hvd.rank()} of {hvd.size()}: accuracy {right:.2f}", flush=True)
if hvd.rank() == 0:
    torch.save(model.state_dict(), Path(options["--model-dir"]) / "checkpoint")
"""


def debian(folder: Path, bashrc: str) -> bytes:
    """With Python, pip and Open MPI, as a tar archive."""
    tree = folder / "tree"
    packages = "ca-certificates,python3,python3-pip,openmpi-bin"
    made = ["debootstrap", "--variant=minbase", f"--include={packages}", clean_tree.SUITE, str(tree)]
    subprocess.run([*made, clean_tree.mirror()], check=True, capture_output=True)
    clean_tree.give_network_and_settings(tree)
    (tree / "root/.bashrc").write_text(bashrc)
    try:
        packing = ["tar", "-C", str(tree), "--exclude=./var/cache/apt", "-c", "."]
        return subprocess.run(packing, check=True, capture_output=True).stdout
    finally:
        shutil.rmtree(tree)


if is_long():

    @pytest.mark.needs_programs("debootstrap")
    def test_the_articles_job_trains_in_a_debian_that_its_preparation_completes(
        lab: Lab, tmp_path: Path, digits: dict[str, bytes]
    ) -> None:
        """apt-get and pip in the container, and eight ranks of Open MPI that learn: minutes."""
        bashrc = "case $- in *i*) ;; *) return ;; esac\nexport WORLD=debian PYTHONPATH=/opt/gyre OMP_NUM_THREADS=1\n"
        lab.maker.add("team/debian:1", debian(tmp_path, bashrc))
        lab.push("team/debian:1")
        links = [(f"pip-{number}", folder) for number, folder in enumerate(clean_tree.folders_of_pip())]
        links.append(("gyre", "/opt/gyre"))
        shown = {name: folder for name, folder in links if name != "gyre"} | {"gyre": str(ROOT / "python")}
        lab.add_cluster("article", shown)
        making = "".join(
            f'mkdir -p "$(dirname {folder})"; ln -sn "$AZ_BATCHAI_MOUNT_ROOT/{name}" {folder}\n'
            for name, folder in links
        )
        scripts = lab.add_scripts(
            INSTALLATION.replace("LINKS\n", making), MEETING + TRAINING.replace("cifar10 --", TRAINS)
        )
        (scripts / "cifar10.py").write_text(PYTHON_TRAINER)
        for name, content in digits.items():
            (scripts / "data" / name).parent.mkdir(parents=True, exist_ok=True)
            (scripts / "data" / name).write_bytes(content)
        file = tmp_path / "job.json"
        file.write_text(articles_job_in(lab.container("team/debian:1", readBashrc=True)))
        lab.server.ok("job", "submit", str(file), "--cluster", "article", "--name", "debian")
        code = lab.server.verb("job", "wait", "debian", seconds=1200).returncode
        logs = lab.server.ok("job", "logs", "debian")
        assert code == 0, logs + lab.server.ok("job", "events", "debian")
        said = sorted(line for line in logs.splitlines() if line.startswith("rank"))
        assert [line.split(":")[0] for line in said] == [f"rank {rank} of 8" for rank in range(8)]
        assert float(said[0].split()[-1]) > 0.6
        assert len(list(scripts.glob("**/jobs/debian/**/models/checkpoint"))) == 1
        lab.expect_nothing_left()


def articles_job_in(container: dict[str, Any]) -> str:
    """The published file, byte for byte, but for its containerSettings."""
    text = ARTICLE.read_text()
    begin = text.index("{", text.index('"containerSettings"'))
    end = text.index(',\n        "jobPreparation"')
    assert json.loads(text[begin:end]) == {"imageSourceRegistry": {"image": "tensorflow/tensorflow:1.6.0-gpu"}}
    return text[:begin] + json.dumps(container) + text[end:]
