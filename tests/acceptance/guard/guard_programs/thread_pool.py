"""Plain functions as tools, called in a pool of threads."""

from concurrent.futures import ThreadPoolExecutor

from common import COUNT, at, denied, execute, guard, say
from toolgate_orchestrator import CallDenial


@guard.tool
def pay(number: int):
    return execute("pay", {"number": number})


@guard.tool(denied=denied)
def forbidden(number: int):
    return execute("forbidden", {"number": number})


@guard.tool(name="forbidden-too")
def forbidden_too(number: int):
    return execute("forbidden", {"number": number})


def work(number):
    """A tool with an odd number is denied by what it raises."""
    with guard.turn(at):  # for this thread: whose calls they are
        if number % 10 != 9:
            pay(number)
        elif number % 20 == 9:
            forbidden(number)
        else:
            try:
                forbidden_too(number)
            except CallDenial:
                denied_by_raise.append(number)


denied_by_raise = []
with ThreadPoolExecutor(16) as pool:
    list(pool.map(work, range(COUNT)))
from common import _counts  # noqa: E402 - what these count on their own

_counts["denied"] += len(denied_by_raise)
say()
