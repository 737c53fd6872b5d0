"""Makes a checkout an installed package of a venv, as far as Python can tell: `import gyre` finds the checkout's files,
and `importlib.metadata` (so torch, which looks for the entry point of a backend) finds what pip would have written.

    register_checkout.py ROOT SITE_PACKAGES

Nothing is copied, and pip can list and uninstall the result. Does nothing when all is in place, and says why where the
package itself is installed already.
"""

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

PATH_FILE = "gyre-checkout.pth"
INSTALLER = "gyre ./dev"
# Of the venv, seen from its site-packages.
SCRIPTS = "../../../bin"


def entry_points(project: dict[str, Any]) -> str:
    """The text of entry_points.txt."""
    groups = dict(project.get("entry-points", {}))
    if project.get("scripts"):
        groups["console_scripts"] = project["scripts"]
    sections = []
    for group, entries in groups.items():
        lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
        sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)


def metadata(project: dict[str, Any]) -> str:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {requirement}" for requirement in project["dependencies"]),
    ]
    return "\n".join(lines) + "\n"


def script(module: str, function: str) -> str:
    """A program of the venv, whose Python runs this tool."""
    return f"#!{sys.executable}\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"


def files_of(root: Path, folder: str) -> dict[str, str]:
    """All files, by their path in site-packages, with their text."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    url = {"url": root.resolve().as_uri(), "dir_info": {"editable": True}}
    files = {
        PATH_FILE: f"{root / 'python'}\n",
        f"{folder}/METADATA": metadata(project),
        f"{folder}/entry_points.txt": entry_points(project),
        f"{folder}/direct_url.json": json.dumps(url) + "\n",
        f"{folder}/INSTALLER": INSTALLER + "\n",
    }
    for name, place in project.get("scripts", {}).items():
        files[f"{SCRIPTS}/{name}"] = script(*place.split(":"))
    record = f"{folder}/RECORD"
    files[record] = "".join(f"{name},,\n" for name in (*files, record))
    return files


def is_ours(folder: Path) -> bool:
    installer = folder / "INSTALLER"
    return installer.is_file() and installer.read_text(encoding="utf-8").strip() == INSTALLER


def register(root: Path, site: Path) -> str | None:
    """Why nothing was done, if so."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name = project["name"].replace("-", "_")
    wanted = f"{name}-{project['version']}.dist-info"
    for folder in sorted(site.glob(f"{name}-*.dist-info")):
        if not is_ours(folder):
            return f"{project['name']} is installed in {site} and stays what `import gyre` finds; uninstall it first"
        if folder.name != wanted:
            shutil.rmtree(folder)
    for path, text in files_of(root, wanted).items():
        file = site / path
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
            if path.startswith(SCRIPTS):
                file.chmod(0o755)
    return None


if __name__ == "__main__":
    refusal = register(Path(sys.argv[1]), Path(sys.argv[2]))
    if refusal:
        print(f"dev: {refusal}", file=sys.stderr)
