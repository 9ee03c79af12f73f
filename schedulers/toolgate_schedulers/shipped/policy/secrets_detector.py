"""Secrets that detect-secrets finds in a text: the kind `secrets`, behind the extra `detectors`.

Only this module imports detect_secrets. Its patterns are those of a regular engine that goes back, so it
sees short pieces of each line, and each piece takes many steps of the search.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from toolgate_bus.errors import ConfigError
from toolgate_bus.installation import how_to_install

from toolgate_schedulers.shipped.policy.masks import SearchBudget, Span

EXTRA: Final = "detectors"
MAX_PIECE: Final = 1024
"""Most characters that a detector sees at once."""
_OVERLAP: Final = 256
_EACH_CHARACTER: Final = 200
"""Steps of the search that a character takes under all detectors."""
_EACH_PIECE: Final = 2000
"""Steps that a piece takes, however short."""
_NOISY: Final = frozenset(("IPPublicDetector",))
"""Detectors that find what is no secret."""


def find_secrets(text: str, budget: SearchBudget, known: set[str]) -> Iterator[Span]:
    """Yield the places of secrets in a text. Raises ConfigError if the package is missing.

    `known` are lines that were searched in another reading of the text; those of this one are added.
    """
    detectors = load_detectors()
    begin = 0
    lines = text.splitlines(keepends=True)
    for line in lines:
        for start in range(0, 0 if line in known else len(line), MAX_PIECE - _OVERLAP):
            piece = line[start : start + MAX_PIECE]
            budget.spend(_EACH_PIECE + len(piece) * _EACH_CHARACTER)
            for detector in detectors:
                for secret in detector.analyze_string(piece.rstrip("\r\n")):
                    yield from _places(secret, piece, begin + start)
            if start + MAX_PIECE >= len(line):
                break
        begin += len(line)
    known.update(lines)


def _places(secret: Any, piece: str, begin: int) -> Iterator[Span]:
    found = str(secret)
    at = piece.find(found) if found else -1
    while at >= 0:
        yield begin + at, begin + at + len(found)
        at = piece.find(found, at + len(found))


@lru_cache(maxsize=1)
def load_detectors() -> Sequence[Any]:
    """Return the detectors of the package. Raises ConfigError with the command that installs it."""
    try:
        from detect_secrets.core.plugins import util  # here: the package may be missing
    except ImportError:
        raise ConfigError(
            f"mask: secrets needs detect-secrets, which is not installed. Run: {how_to_install(EXTRA)}"
        ) from None
    classes = util.get_mapping_from_secret_type_to_class().values()
    return tuple(one() for one in classes if one.__name__ not in _NOISY)
