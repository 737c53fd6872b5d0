"""Tiny Python packages in a folder, as pip finds them there without a network."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

# Builds without anything to download, once there is a file "go" beside the archive's folder.
BACKEND = """
import os, time, zipfile
NAME = "slowpkg"
def get_requires_for_build_wheel(settings=None):
    return []
def build_wheel(folder, settings=None, metadata=None):
    open({up!r}, "a").write("building\\n")
    while not os.path.exists({go!r}):
        time.sleep(0.02)
    name = NAME + "-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as file:
        file.writestr(NAME + ".py", "answer = 'forty-three'\\n")
        about = NAME + "-1.0.dist-info"
        file.writestr(about + "/METADATA", "Metadata-Version: 2.1\\nName: " + NAME + "\\nVersion: 1.0\\n")
        file.writestr(about + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        file.writestr(about + "/RECORD", "")
    return name
"""


def add_wheel(folder: Path) -> None:
    """tinypkg: a module of one line, and a program `tiny`."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "tinypkg-1.0-py3-none-any.whl", "w") as file:
        file.writestr("tinypkg.py", "answer = 'forty-two'\ndef main():\n    print('tiny says', answer)\n")
        about = "tinypkg-1.0.dist-info"
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tinypkg\nVersion: 1.0\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/entry_points.txt", "[console_scripts]\ntiny = tinypkg:main\n")
        file.writestr(f"{about}/RECORD", "")


def add_slow_package(folder: Path) -> None:
    """slowpkg: its making writes a line to `building`, and then waits for the file `go`, both in the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "building").touch()
    (folder / "building").chmod(0o666)
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "slowpkg"\nversion = "1.0"\n',
        "backend.py": BACKEND.format(up=str(folder / "building"), go=str(folder / "go")),
        "PKG-INFO": "Metadata-Version: 2.1\nName: slowpkg\nVersion: 1.0\n",
    }
    with tarfile.open(folder / "slowpkg-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"slowpkg-1.0/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
