"""What Batch AI's users bring to the job service: command lines, job files, and what their jobs expect of a node."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
from pathlib import Path

from article_job import ARTICLE
from job_server import JobServer


def test_options_for_the_driver_reach_it(server: JobServer) -> None:
    """The command ran for ever, at full speed."""
    done = server.verb("cluster", "create", "pool", "-t", "1", "--driver-option", "partition=a=b")
    assert done.returncode == 1
    assert "driver 'local' has no driverOptions, and 'partition' was given" in done.stderr


def test_a_size_that_a_clusters_file_leaves_out_comes_from_the_command_line(server: JobServer, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"properties": {"scaleSettings": {"manual": {"targetNodeCount": 1}}}}))
    refused = server.verb("cluster", "create", "pool", "-f", str(file))
    assert refused.returncode == 2
    assert "/properties/vmSize is missing" in refused.stderr
    server.ok("cluster", "create", "pool", "-s", "Standard_NC6", "-f", str(file))
    assert server.json("cluster", "show", "pool")["properties"]["vmSize"] == "Standard_NC6"


def test_a_job_with_a_container_is_refused_before_it_waits_where_nothing_can_start_it(
    server: JobServer, tmp_path: Path
) -> None:
    """It was accepted, and failed on its nodes."""
    settings = {"vmSize": "Standard_NC6", "gyreSettings": {"containers": "refused"}}
    (tmp_path / "pool.json").write_text(json.dumps({"properties": settings}))
    pool = ("-f", str(tmp_path / "pool.json"), "-t", "2", "--mount", f"external={server.share}")
    server.ok("cluster", "create", "pool", *pool)
    refused = server.verb("job", "submit", str(ARTICLE), "-c", "pool")
    assert refused.returncode == 1
    assert "cluster 'pool': it has containerSettings (image tensorflow/tensorflow:1.6.0-gpu)" in refused.stderr
    assert "--containers-on-host" in refused.stderr
    assert server.json("job", "list") == []
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps({"properties": settings}))
    done = subprocess.run(
        [
            str(server.gyre),
            "job",
            "run",
            str(ARTICLE),
            "--cluster",
            str(cluster),
            "--mount",
            f"external={server.share}",
        ],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert f"the job cannot run on the cluster of {cluster}: it has containerSettings" in sentence


def test_a_preparation_that_wants_to_be_root_is_told_so_before_its_package_manager_fails(
    server: JobServer,
) -> None:
    """It ran as root in Batch AI; a script of it is looked into as well."""
    server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={server.share}")
    user = "nobody" if os.geteuid() == 0 else getpass.getuser()
    advice = f"which needs root, and runs as user '{user}'; have an administrator install the packages on the nodes"
    script = server.share / "job-prep.sh"
    script.write_text(
        "#!/bin/bash\nset -e\n# Everything that the training needs.\napt-get install -y gyre-no-package\n"
    )
    for line, called in (
        ("apt-get install -y gyre-no-package", "apt-get"),
        ("bash $AZ_BATCHAI_MOUNT_ROOT/external/job-prep.sh", "apt-get (in "),
    ):
        properties = {**server.custom("true"), "jobPreparation": {"commandLine": line}}
        name = server.ok("job", "submit", str(server.job_file(properties))).strip()
        assert server.verb("job", "wait", name).returncode == 100
        events = server.ok("job", "events", name).splitlines()
        (told,) = (row for row, event in enumerate(events) if f"the job's preparation calls {called}" in event)
        failed = [row for row, event in enumerate(events) if "JobPreparationFailed" in event]
        assert failed, events
        assert told < failed[0], events
        assert all(advice in events[row] for row in (told, failed[-1])), events
    properties = {**server.custom("true"), "jobPreparation": {"commandLine": "apt-get --version; python3 --version"}}
    name = server.ok("job", "submit", str(server.job_file(properties))).strip()
    assert server.verb("job", "wait", name).returncode == 0
    assert "needs root" not in server.ok("job", "events", name)


def test_horovodrun_starts_ranks_on_the_jobs_nodes(server: JobServer) -> None:
    server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}")
    line = (
        'horovodrun -np 4 -H "$(echo "$AZ_BATCH_HOST_LIST" | sed "s/,/:2,/"):2" -p 2222 '
        "sh -c 'echo rank $HOROVOD_RANK of $HOROVOD_SIZE on $AZ_BATCH_NODE_ID'"
    )
    name = server.ok("job", "submit", str(server.job_file(server.custom(line, nodes=2)))).strip()
    assert server.verb("job", "wait", name).returncode == 0, server.ok("job", "logs", name)
    ranks = sorted(line.split() for line in server.ok("job", "logs", name).splitlines() if "rank" in line)
    assert [words[-5:-2] for words in ranks] == [[str(rank), "of", "4"] for rank in range(4)]
    nodes = [words[-1] for words in ranks]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]
