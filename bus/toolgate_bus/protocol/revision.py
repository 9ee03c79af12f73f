"""Which configuration a scheduler rules by: a label of its operator's, and a digest of what it says. Pure.

Replicas of one name should have one revision; while an update is under way they have two, and each
verdict says which of them gave it.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import ConfigError

MAX_REVISION: Final = 64
"""Characters of a revision's text."""
DIGEST: Final = 12
_LABEL: Final = re.compile(r"[A-Za-z0-9_.+-]{1,48}")
_DIGEST: Final = re.compile(r"[0-9a-f]{1,15}")


class Revision(NamedTuple):
    """A configuration, as people and verdicts name it."""

    label: str = ""
    """What its operator calls it (`--revision`); it says nothing of what is in it."""
    digest: str = ""
    """Twelve hexadecimal digits of what is in it."""

    @property
    def text(self) -> str:
        """How it stands in verdicts: `label@digest`, or the one of them that is there."""
        return "@".join(part for part in self if part)

    @classmethod
    def read(cls, told: Any) -> "Revision":
        """A revision as a heartbeat tells it; whatever is not as it should be counts as not told."""
        if not isinstance(told, dict):
            return NO_REVISION
        label, digest = told.get("label"), told.get("digest")
        return cls(
            label if isinstance(label, str) and _LABEL.fullmatch(label) else "",
            digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else "",
        )


NO_REVISION: Final = Revision()


def revision_of(config: Mapping[str, Any], label: str | None = None) -> Revision:
    """The revision of an effective configuration; raises ConfigError for a label that cannot be one."""
    check_label(label)
    import json  # not for an author's module, which only names revisions

    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"), default=str)
    return Revision(label or "", hashlib.sha256(canonical.encode()).hexdigest()[:DIGEST])


def check_label(label: str | None) -> None:
    """Raises ConfigError for a label that cannot be one; None is no label."""
    if label is not None and not _LABEL.fullmatch(label):
        raise ConfigError(
            f"revision: 1 to 48 letters, digits, '.', '_', '+' or '-' are allowed, not {label!r}"
        )
