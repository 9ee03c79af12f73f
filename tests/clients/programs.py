"""Tries hooks in the coding agents' own programs, in their newest releases, on an LLM that follows a script.

    python tests/clients/programs.py           all that can be had
    python tests/clients/programs.py claude    one, or several

They come from npm into .cache/clients, or $TOOLGATE_CLIENT_PROGRAMS, together about 1.2 GB; once a day they
are looked for again. Nobody's account is needed, and nothing leaves the machine: each gets a home of its own,
and its LLM is a server on loopback. Cursor's program is not on npm: its hook is held to its documents alone.

Exit codes: 0 all is as the documents say, 1 something is not, 3 a program could not be had (nothing else
failed).
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAMS = Path(os.environ.get("TOOLGATE_CLIENT_PROGRAMS") or ROOT / ".cache" / "clients")
PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "gemini": "@google/gemini-cli",
    "copilot": "@github/copilot",
}
FRESH_S = 86_400.0
INSTALL_S = 900.0


class NoProgram(Exception):  # noqa: N818 - not an error of ours
    """It cannot be had here."""


def install(name: str) -> None:
    """Its newest release, unless that was looked for today; raises NoProgram."""
    stamp = PROGRAMS / f"{name}.installed"
    if stamp.exists() and time.time() - stamp.stat().st_mtime < FRESH_S and path_of(name).exists():
        return
    if not shutil.which("npm"):
        raise NoProgram("npm is not here")
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    options = ("--no-audit", "--no-fund", "--loglevel", "error", "--prefix", str(PROGRAMS))
    command = ["npm", "install", *options, f"{PACKAGES[name]}@latest"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        raise NoProgram(f"npm took more than {INSTALL_S:.0f} s") from None
    if done.returncode or not path_of(name).exists():
        raise NoProgram("\n".join(done.stderr.splitlines()[-5:]))
    stamp.touch()


def path_of(name: str) -> Path:
    """What is run."""
    return PROGRAMS / "node_modules" / ".bin" / name


def version_of(name: str) -> str:
    """As it tells it, in one line."""
    done = subprocess.run([path_of(name), "--version"], capture_output=True, text=True, check=False)
    return (done.stdout.strip() or "?").splitlines()[0]


def main() -> int:
    """Ends with an exit code of the module's words."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clients", nargs="*", metavar="NAME", help=f"of {', '.join(PACKAGES)}")
    asked = parser.parse_args()
    if unknown := set(asked.clients) - set(PACKAGES):
        parser.error(f"there is no {', '.join(sorted(unknown))}: there are {', '.join(PACKAGES)}")
    there, absent = [], []
    for name in asked.clients or PACKAGES:
        try:
            install(name)
        except NoProgram as error:
            absent.append(name)
            print(f"skipped: {PACKAGES[name]} cannot be had here:\n{error}", flush=True)
        else:
            there.append(name)
            print(f"{name}: {version_of(name)}", flush=True)
    broken = (
        bool(there)
        and subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rs", HERE / "clients_suite.py"],
            cwd=ROOT,
            env={**os.environ, "TOOLGATE_CLIENTS": ",".join(there)},
            check=False,
        ).returncode
    )
    return 1 if broken else 3 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
