"""Packages of a Debian release that is not this machine's: lists of its own, nothing installed.

Where they come from stands in this machine's configuration of apt: its archive, and the keys that it trusts.
"""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from typing import NamedTuple

LIMIT_S = 300.0


class NotHereError(Exception):
    """What a test needs cannot be had on this machine; the message says why."""


class Archive(NamedTuple):
    """Where this machine has its Debian from."""

    uri: str
    keys: str
    """A path, or nothing where apt trusts all of its keys."""


def find_archive() -> Archive:
    """The first source with Debian's component `main`; raises NotHereError where apt names none."""
    for tool in ("apt-get", "dpkg-deb"):
        if which(tool) is None:
            raise NotHereError(f"{tool} is not here")
    release = Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=(\w+)", release, re.MULTILINE)
    if "ID=debian" not in release.splitlines() or found is None:
        raise NotHereError("this is no Debian")
    for path in (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))):
        if path.is_file():
            for archive, suites in _read_sources(path):
                if found[1] in suites:
                    return archive
    raise NotHereError("apt has no source of Debian")


def _read_sources(path: Path) -> list[tuple[Archive, list[str]]]:
    """Each source of a file, in either notation, with its suites."""
    text = path.read_text()
    if path.suffix == ".list":
        lines = re.findall(r"^deb (?:\[([^]]*)\] )?(\S+) (\S+) .*\bmain\b", text, re.MULTILINE)
        keys = [re.search(r"signed-by=(\S+)", options) for options, *_ in lines]
        return [
            (Archive(uri, key[1] if key else ""), [suite])
            for (_, uri, suite), key in zip(lines, keys, strict=True)
        ]
    found = []
    for stanza in text.split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): *(.*)$", stanza, re.MULTILINE))
        if fields.get("Types", "").startswith("deb") and "main" in fields.get("Components", ""):
            archive = Archive(fields["URIs"].split()[0], fields.get("Signed-By", ""))
            found.append((archive, fields["Suites"].split()))
    return found


def source_line(release: str) -> str:
    """The line of sources.list for a release."""
    archive = find_archive()
    keys = f"[signed-by={archive.keys}] " if archive.keys else ""
    return f"deb {keys}{archive.uri} {release} main"


def download_packages(names: Sequence[str], release: str, folder: Path) -> list[Path]:
    """Files of packages of a release; raises NotHereError with apt's words where it has none."""
    place = folder / "packages" / release
    for part in ("lists/partial", "cache/archives/partial", "sources"):
        (place / part).mkdir(parents=True, exist_ok=True)
    (place / "sources" / "debian.list").write_text(source_line(release) + "\n")
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": place / "sources",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State::lists": place / "lists",
        "Dir::Cache": place / "cache",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
        "APT::Update::Post-Invoke-Success": "",
    }
    apt = ["apt-get", "-qq", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    for words in ([*apt, "update"], [*apt, "download", *names]):
        ran = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if ran.returncode:
            raise NotHereError(f"apt has no {release}: {ran.stderr.strip()[-400:]}")
    return sorted(place.glob("*.deb"))
