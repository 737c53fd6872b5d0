"""Ranks of `gyre run -H` in a job start in their own node's folder, wherever in the job's folder it is started."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from article_job import make_share
from other_user import NOBODY

# Without mount namespaces, the folders of virtual nodes have different paths.
LINE = "cd {folder} && gyre run -H $AZ_BATCH_HOST_LIST -- sh -c 'echo $AZ_BATCH_NODE_ID is in {folder} of $(cat name)'"


@pytest.mark.parametrize("folder", [".", "..", "src"])
def test_ranks_start_in_their_own_nodes_folder_from_anywhere_in_the_jobs_folder(gyre: Path, folder: str) -> None:
    """From the folder above the code, ranks of the second node started in the first one's folder."""
    user = NOBODY if os.geteuid() == 0 else None
    with make_share() as share:
        home = share / "home"
        (home / "code" / "src").mkdir(parents=True)
        (home / "code" / "src" / "train.py").touch()
        file = home / "job.json"
        properties = {
            "nodeCount": 2,
            "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external",
            "jobPreparation": {"commandLine": f"echo $AZ_BATCH_NODE_ID > {folder}/name"},
            "customToolkitSettings": {"commandLine": LINE.format(folder=folder)},
        }
        file.write_text(json.dumps({"properties": properties}))
        if user is not None:
            for path in (home, *home.rglob("*")):
                os.chown(path, user, user)
        done = subprocess.run(
            [gyre, "job", "run", file, "--mount", f"external={share}", "--code", home / "code", "--quiet"],
            env={"PATH": f"{gyre.parent}:{os.environ['PATH']}", "HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **({} if user is None else {"user": user, "group": user, "extra_groups": []}),
        )
    assert done.returncode == 0, done.stdout + done.stderr
    said = sorted(line.partition("] ")[2].split() for line in done.stdout.splitlines() if " is in " in line)
    assert len(said) == 2, done.stdout + done.stderr
    assert [words[0] for words in said] == [words[-1] for words in said], done.stdout
    assert said[0][0] != said[1][0]
