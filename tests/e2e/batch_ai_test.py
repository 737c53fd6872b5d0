"""What Batch AI's users bring to the job service: command lines, job files, and what their jobs expect of a node."""

from __future__ import annotations

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
    server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}")
    refused = server.verb("job", "submit", str(ARTICLE), "-c", "pool")
    assert refused.returncode == 1
    assert "cluster 'pool': it has containerSettings (image tensorflow/tensorflow:1.6.0-gpu)" in refused.stderr
    assert "--containers-on-host" in refused.stderr
    assert server.json("job", "list") == []
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps({"properties": {"vmSize": "Standard_NC6"}}))
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
    assert "it has containerSettings" in done.stderr.splitlines()[-1]
