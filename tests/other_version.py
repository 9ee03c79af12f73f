"""Runs the command of another checkout of this project, beside the one that is installed.

Its sources come first on the path, and so do its entry points: commands and schedulers are found by them, and
those of the installed version name modules that another may not have.
"""

import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["command_of", "path_of"]

NAMES = ("toolgate", "toolgate-bus")
"""Under which the project was installed, at any time."""
PACKAGES = ("bus", "orchestrator", "schedulers")


def command_of(tree: Path) -> tuple[str, ...]:
    """How its `toolgate` is started, without its arguments."""
    module, _, function = _project(tree)["scripts"]["toolgate"].partition(":")
    return (sys.executable, "-c", f"from {module} import {function}; {function}()")


def path_of(tree: Path, folder: Path) -> str:
    """What PYTHONPATH must be for it; its metadata are written into the folder."""
    project = _project(tree)
    points = {"console_scripts": project["scripts"], **project["entry-points"]}
    for name in NAMES:  # those of the installed version are not seen behind these
        info = folder / f"{name.replace('-', '_')}-0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
        if name == project["name"]:
            (info / "entry_points.txt").write_text("".join(_group(*group) for group in points.items()))
    return os.pathsep.join(map(str, (folder, *(tree / package for package in PACKAGES))))


def _project(tree: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    return found


def _group(name: str, points: Mapping[str, str]) -> str:
    return "".join((f"[{name}]\n", *(f"{point} = {value}\n" for point, value in points.items()), "\n"))
