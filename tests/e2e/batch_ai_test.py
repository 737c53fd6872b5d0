"""What Batch AI's users bring to the job service: command lines, job files, and what their jobs expect of a node."""

from __future__ import annotations

import json
from pathlib import Path

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
