"""The revision of a scheduler's configuration: its operator's label, and a digest of its content. Pure.

Replicas of one scheduler should have one revision. During an update they have two, and each verdict names
the one that gave it.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import ConfigError

MAX_REVISION: Final = 64
"""Maximum number of characters of a revision's text."""
DIGEST: Final = 12
_LABEL: Final = re.compile(r"[A-Za-z0-9_.+-]{1,48}")
_DIGEST: Final = re.compile(r"[0-9a-f]{1,15}")


class Revision(NamedTuple):
    """Name of a configuration, for people and verdicts."""

    label: str = ""
    """Name that its operator gave it (`--revision`), independent of its content."""
    digest: str = ""
    """Twelve hexadecimal digits of a digest of its content."""

    @property
    def text(self) -> str:
        """Text in verdicts: `label@digest`, or the one of the two that is set."""
        return "@".join(part for part in self if part)

    @classmethod
    def read(cls, told: Any) -> "Revision":
        """Read a revision from a heartbeat. A malformed part counts as missing."""
        if not isinstance(told, dict):
            return NO_REVISION
        label, digest = told.get("label"), told.get("digest")
        return cls(
            label if isinstance(label, str) and _LABEL.fullmatch(label) else "",
            digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else "",
        )


NO_REVISION: Final = Revision()


def revision_of(config: Mapping[str, Any], label: str | None = None) -> Revision:
    """Return the revision of an effective configuration. Raises ConfigError for an invalid label."""
    check_label(label)
    import json  # here, because an author's module only names revisions

    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"), default=str)
    return Revision(label or "", hashlib.sha256(canonical.encode()).hexdigest()[:DIGEST])


def check_label(label: str | None) -> None:
    """Raise ConfigError for an invalid label; None is no label."""
    if label is not None and not _LABEL.fullmatch(label):
        raise ConfigError(
            f"revision: 1 to 48 letters, digits, '.', '_', '+' or '-' are allowed, not {label!r}"
        )
