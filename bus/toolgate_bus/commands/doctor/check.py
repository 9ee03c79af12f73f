"""A check as packages contribute it: the entry-point group `toolgate.checks`.

An entry point names a `Check`, or several. The bus brings those of the server and the fleet; what a plan
or a scheduler's config is worth only their own packages know. A check looks and says; it changes nothing.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from toolgate_bus.commands.doctor.finding import Diagnostic, error
from toolgate_bus.installation import how_to_install
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.roster import RosterView

GROUP: Final = "toolgate.checks"
Need = Literal["server", "plan", "bundle", "config"]
"""Without it a check is left out: a server that answers, `--plan`, `--bundle`, `--config`."""


class Bus(NamedTuple):
    """Where something that is checked would meet others; None is what the command says."""

    redis: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """What a check may look at."""

    namespace: str = "default"
    plan: Path | None = None
    configs: Sequence[tuple[str, Path]] = ()
    """Scheduler (as `scheduler run` names it) and its file."""
    keys: Path | None = None
    redis: str | None = None
    """URL of the server; None: there is none to look at."""
    bundle: str | None = None
    """File, folder or URI of an Amplifier bundle."""
    embedded: bool = False
    """Whether that is the user's own, which keeps nothing and is not meant to."""
    commands: Commands | None = None
    """For reading alone: commands that change something are refused. None: no server answers."""
    view: RosterView = field(default_factory=RosterView)
    """Who is alive; nobody where no server answers."""

    @property
    def available_needs(self) -> frozenset[Need]:
        """What a check may need."""
        there: dict[Need, bool] = {
            "server": self.commands is not None,
            "plan": self.plan is not None,
            "bundle": self.bundle is not None,
            "config": bool(self.configs),
        }
        return frozenset(need for need, is_there in there.items() if is_there)


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    name: str
    subject: str
    """What a finding is about if the check itself fails or takes too long."""
    run: Callable[[Context], Awaitable[Sequence[Diagnostic]]]
    """Raises ToolgateError where it cannot look; anything else it raises is told as its defect."""
    needs: frozenset[Need] = frozenset({"server"})
    bus: Callable[[Context], Bus] | None = None
    """Asked before any check is run, where the command does not name a server. Raises nothing."""


def load_checks(points: Iterable[EntryPoint] | None = None) -> tuple[list[Check], list[Diagnostic]]:
    """The checks of all packages, and what kept some from being loaded."""
    checks: list[Check] = []
    findings: list[Diagnostic] = []
    for point in sorted(entry_points(group=GROUP) if points is None else points, key=lambda one: one.name):
        try:
            loaded: Any = point.load()
            several = [loaded] if isinstance(loaded, Check) else list(loaded)
            wrong = next((one for one in several if not isinstance(one, Check)), None)
            if wrong is not None:
                raise TypeError(f"{wrong!r} is no Check")
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
