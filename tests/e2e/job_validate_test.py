"""`gyre job validate`: what a script that checks job files before it submits them relies on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

VALID = {
    "properties": {
        "nodeCount": 2,
        "stdOutErrPathPrefix": "/logs",
        "secrets": [{"name": "TOKEN", "value": "hush"}],
        "horovodSettings": {"pythonScriptFilePath": "/train.py"},
    }
}


def validate(gyre: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AZURE_")}
    return subprocess.run(
        [str(gyre), "job", "validate", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=environment,
    )


def test_a_valid_file_is_0_and_one_line(gyre: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(VALID))
    done = validate(gyre, str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{file} is a valid job (horovod, 2 nodes, version 2018-05-01)\n"


def test_an_invalid_file_is_1_and_every_error_has_its_line(gyre: Path) -> None:
    done = validate(gyre, "-", stdin='{"properties": {\n"nodeCuont": 2,\n"stdOutErrPathPrefix": "/l"}}')
    assert done.returncode == 1
    assert done.stdout == "stdin is not a valid job: 2 errors, 1 warning\n"
    first, second, third = done.stderr.splitlines()
    assert first == "stdin:1: /properties/nodeCount is missing"
    assert second.startswith("stdin:1: /properties has no toolkit block: one of customToolkitSettings, ")
    assert third == (
        'stdin:2: warning: /properties/nodeCuont is not a known property (did you mean "nodeCount"?); it is ignored'
    )


def test_strict_refuses_what_is_only_tolerated(gyre: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"properties": {**VALID["properties"], "nodeCount": "2"}}))
    assert validate(gyre, str(file)).returncode == 0
    assert validate(gyre, "--strict", str(file)).returncode == 1


def test_json_has_problems_and_the_job_without_its_secrets(gyre: Path) -> None:
    done = validate(gyre, "-o", "json", "-", stdin=json.dumps({**VALID, "colour": "red"}))
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert answer["valid"] is True
    assert answer["version"] == "2018-05-01"
    (problem,) = answer["problems"]
    assert (problem["severity"], problem["pointer"], problem["line"]) == ("warning", "/colour", 1)
    assert answer["properties"]["horovodSettings"] == {"pythonScriptFilePath": "/train.py"}
    assert answer["properties"]["secrets"] == [{"name": "TOKEN", "value": None}]
    refused = json.loads(validate(gyre, "-o", "json", "-", stdin="{").stdout)
    assert (refused["valid"], refused["properties"]) == (False, None)


def test_files_named_yaml_are_yaml(gyre: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("{properties: {nodeCount: 1, stdOutErrPathPrefix: /l, customToolkitSettings: {commandLine: ls}}}\n")
    assert validate(gyre, str(file)).stdout.startswith(f"{file} is a valid job (custom, 1 node, ")
    assert validate(gyre, "-", stdin=file.read_text()).returncode == 1, "which begins as JSON does"


def test_a_file_that_cannot_be_read_is_2(gyre: Path, tmp_path: Path) -> None:
    done = validate(gyre, str(tmp_path / "none.json"))
    assert done.returncode == 2
    assert done.stderr == f"gyre job validate: cannot open {tmp_path}/none.json: No such file or directory\n"
    assert validate(gyre, str(tmp_path)).returncode == 2


def test_a_mistyped_verb_of_the_group_suggests_the_right_one(gyre: Path) -> None:
    done = subprocess.run([str(gyre), "job", "valdate"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("gyre job: unknown command 'valdate'; did you mean 'validate'?")
