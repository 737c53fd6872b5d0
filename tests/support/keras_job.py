"""Jobs of Batch AI whose programs need TensorFlow: that of .venv/tensorflow, which tests/tensorflow uses too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from other_user import PYTHON as OTHER_USERS_PYTHON

ROOT = Path(__file__).resolve().parents[2]
TENSORFLOW = ROOT / ".venv" / "tensorflow"
PACKAGES = TENSORFLOW / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
# The jobs of root have another account, which may not reach the Python that .venv is made of.
PYTHON = OTHER_USERS_PYTHON if os.geteuid() == 0 else str(TENSORFLOW / "bin" / "python")
MOUNTED = "$AZ_BATCHAI_MOUNT_ROOT/external"


def run_job(gyre: Path, share: Path, script: str, nodes: int, block: dict[str, Any], **variables: str) -> str:
    """Its output. `block`: of the toolkit, but for the script and its Python."""
    (share / "train.py").write_text(script)
    home = share / "home"
    home.mkdir()
    variables = {"PYTHONPATH": f"{ROOT / 'python'}:{PACKAGES}", "TF_CPP_MIN_LOG_LEVEL": "2", **variables}
    (toolkit,) = block
    properties = {
        "nodeCount": nodes,
        "stdOutErrPathPrefix": MOUNTED,
        "environmentVariables": [{"name": name, "value": value} for name, value in variables.items()],
        "outputDirectories": [{"id": "MODEL", "pathPrefix": MOUNTED, "pathSuffix": "models"}],
        toolkit: {
            "pythonScriptFilePath": f"{MOUNTED}/train.py",
            "pythonInterpreterPath": PYTHON,
            **block[toolkit],
        },
    }
    (share / "job.json").write_text(json.dumps({"properties": properties}))
    done = subprocess.run(
        [str(gyre), "job", "run", str(share / "job.json"), "--mount", f"external={share}", "--quiet"],
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=home,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
