"""Build the documents as a site, strictly: a link that leads nowhere is an error, and a page without a place.

    python docs/build.py      what `make docs` runs; the site is build/site

Every document, and every file that one links to, is laid into build/pages at its own place of the
repository: so a link leads to the same place on a forge, in an editor and on the site. The menu is
`mkdocs.yml`'s.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "pages"
_GLOBS = ("*.md", "docs/**/*.md", "[a-z]*/README.md", "schedulers/examples/*/README.md")
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    """Every document of the repository."""
    return sorted(
        {page for glob in _GLOBS for page in ROOT.glob(glob) if page.relative_to(ROOT).parts[0] != "build"}
    )


def linked_files(pages: list[Path]) -> set[Path]:
    """The files that documents link to; raises FileNotFoundError for one that is not there."""
    found = set()
    for page in pages:
        for target in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
            if "://" not in target:
                found.add((page.parent / target).resolve(strict=True))
    return found


def pages_without_place() -> list[str]:
    """Documents that the menu does not name."""
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = (page.relative_to(ROOT).as_posix() for page in documents())
    return [name for name in names if not re.search(rf": {re.escape(name)}$", menu, re.MULTILINE)]


def lay_out() -> None:
    """Copy documents and what they link to into build/pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for file in {*documents(), *linked_files(documents())}:
        place = PAGES / file.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)


def main() -> int:
    """0 if the site was built, 1 if not."""
    if missing := pages_without_place():
        print(f"mkdocs.yml gives no place to {', '.join(missing)}", file=sys.stderr)  # noqa: T201 - a command
        return 1
    lay_out()
    zensical = Path(sys.executable).with_name("zensical")
    return subprocess.run([zensical, "build", "--strict", "--clean"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
