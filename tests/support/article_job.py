"""The job file of the article about training with Horovod on Batch AI, and a file share for it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

# The job file of the article that describes training with Horovod on Batch AI, property by property.
ARTICLE = {
    "properties": {
        "nodeCount": 2,
        "environmentVariables": [
            {"name": "NUM_NODES", "value": "2"},
            {"name": "PROCESSES_PER_NODE", "value": "4"},
            {"name": "HOROVOD_TIMELINE", "value": "$AZ_BATCHAI_OUTPUT_TIMELINE/timeline.json"},
        ],
        "customToolkitSettings": {"commandLine": "$AZ_BATCHAI_INPUT_SCRIPTS/run-cifar10.sh"},
        "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external/storagedir",
        "outputDirectories": [
            {"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external/storagedir/h", "pathSuffix": "models"},
            {"id": "TIMELINE", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external/storagedir/h", "pathSuffix": "timelines"},
        ],
        "inputDirectories": [
            {"id": "DATASET", "path": "$AZ_BATCHAI_MOUNT_ROOT/external/storagedir/h/data/cifar-10-batches-py"},
            {"id": "SCRIPTS", "path": "$AZ_BATCHAI_MOUNT_ROOT/external/storagedir/h"},
        ],
        "containerSettings": {"imageSourceRegistry": {"image": "tensorflow/tensorflow:1.6.0-gpu"}},
        "jobPreparation": {"commandLine": "$AZ_BATCHAI_INPUT_SCRIPTS/job-prep.sh"},
    }
}


@contextlib.contextmanager
def make_share() -> Iterator[Path]:
    """A directory that the job's user can use, as a file share is."""
    with tempfile.TemporaryDirectory(prefix="gyre-share-") as folder:
        scripts = Path(folder) / "storagedir" / "h"
        scripts.mkdir(parents=True)
        for path in (Path(folder), scripts.parent, scripts):
            path.chmod(0o777)
        yield Path(folder)


def script(share: Path, name: str, text: str) -> None:
    file = share / "storagedir" / "h" / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
