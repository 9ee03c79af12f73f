"""Checks of `toolgate doctor`, which packages contribute by the entry-point group `toolgate.checks`.

An entry point names one `Check` or several. The bus has the checks of the server and the fleet. Plans and
configs of schedulers are checked by the packages that know them. A check only reads, and changes nothing.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from toolgate_bus.fleet.finding import Finding, error
from toolgate_bus.installation import how_to_install
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.roster.roster import RosterView

GROUP: Final = "toolgate.checks"
Need = Literal["server", "plan", "bundle", "config"]
"""Things that a check may need to be run: a server that answers, `--plan`, `--bundle`, `--config`."""


class Bus(NamedTuple):
    """Bus that the checked plan or config would use. None means the command's own value."""

    redis: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that a check may read."""

    namespace: str = "default"
    plan: Path | None = None
    configs: Sequence[tuple[str, Path]] = ()
    """Schedulers (as `scheduler run` names them) and their files."""
    keys: Path | None = None
    redis: str | None = None
    """URL of the server; None: there is no server to check."""
    bundle: str | None = None
    """File, folder or URI of an Amplifier bundle."""
    embedded: bool = False
    """True if this is the user's embedded server, which keeps nothing on purpose."""
    commands: Commands | None = None
    """Connection that refuses every command that changes something. None: no server answers."""
    view: RosterView = field(default_factory=RosterView)
    """Roster of what is alive; empty if no server answers."""

    @property
    def available_needs(self) -> frozenset[Need]:
        """Needs of checks that this context meets."""
        there: dict[Need, bool] = {
            "server": self.commands is not None,
            "plan": self.plan is not None,
            "bundle": self.bundle is not None,
            "config": bool(self.configs),
        }
        return frozenset(need for need, is_there in there.items() if is_there)


@dataclass(frozen=True, slots=True)
class Check:
    """Check that `toolgate doctor` runs."""

    name: str
    subject: str
    """Subject of the finding if the check itself fails or takes too long."""
    run: Callable[[Context], Awaitable[Sequence[Finding]]]
    """Function that checks. ToolgateError means that it could not; other errors count as its defects."""
    needs: frozenset[Need] = frozenset({"server"})
    bus: Callable[[Context], Bus] | None = None
    """Function that returns the bus of the checked plan or config. It is called first, and raises nothing."""


def load_checks(points: Iterable[EntryPoint] | None = None) -> tuple[list[Check], list[Finding]]:
    """Return the checks of all packages, and findings about those that could not be loaded."""
    checks: list[Check] = []
    findings: list[Finding] = []
    for point in sorted(entry_points(group=GROUP) if points is None else points, key=lambda one: one.name):
        try:
            loaded: Any = point.load()
            several = [loaded] if isinstance(loaded, Check) else list(loaded)
            wrong = next((one for one in several if not isinstance(one, Check)), None)
            if wrong is not None:
                raise TypeError(f"{wrong!r} is not a Check")
        except Exception as raised:  # noqa: BLE001 - another package's code: told, and the others are run
            findings.append(
                error(
                    "doctor",
                    "check-not-loaded",
                    f"the checks {point.name} ({point.value}) cannot be loaded: {raised}",
                    f"install what is missing (`{how_to_install('all')}` installs everything), or uninstall "
                    "the package that offers them",
                )
            )
        else:
            checks += several
    return checks, findings
