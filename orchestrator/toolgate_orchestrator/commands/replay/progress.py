"""How far a replay is: on stderr, so that results stay clean."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from toolgate_bus.commands.options import err_console

__all__ = ["progress"]


@contextmanager
def progress(total: int, what: str = "runs") -> Iterator[Callable[[], None]]:
    """A bar on a terminal, a line at each quarter elsewhere; call what it gives for each one done."""
    if err_console.is_terminal and not err_console.is_dumb_terminal:
        columns = (
            TextColumn("Replaying"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(what),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=err_console, transient=True) as bar:
            task = bar.add_task("", total=total)
            yield lambda: bar.advance(task)
        return
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if done * 4 // total > (done - 1) * 4 // total:
            err_console.print(f"Replayed {done} of {total} {what}")

    yield advance
