"""AgentDojo's side of `toolgate bench agentdojo`: a process of another virtual environment.

It knows nothing of Toolgate. Requests come as lines of JSON on stdin, each is answered by one on stdout:

    {"begin": [suite, user task, injection task or null]}   the user task's own calls
    {"execute": {"tool": …, "arguments": {…}}}              the real tool, on the task's environment
    {"hijack": true}                                        the injection task's calls
    {"judge": true}                                         AgentDojo's own checks on what became of it

The first line tells which suites there are. Environments are AgentDojo's own, without injected texts: the
agent is not an LLM that could read them, but is taken to have been hijacked once its own calls are made.
"""

import json
import sys
from importlib.metadata import version
from typing import Any

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suites

BENCHMARK = "v1.2.2"


class Dojo:
    """The tasks, and the one that is being done."""

    def __init__(self) -> None:
        self.suites = get_suites(BENCHMARK)
        self._fresh = {
            name: suite.load_and_inject_default_environment({}) for name, suite in self.suites.items()
        }
        self._ran: list[Any] = []
        self._hijacked = False

    def describe(self) -> dict[str, Any]:
        """What there is to do."""
        return {
            "agentdojo": version("agentdojo"),
            "benchmark": BENCHMARK,
            "suites": {
                name: {
                    "tools": {tool.name: tool.parameters.model_json_schema() for tool in suite.tools},
                    "users": {id_: task.PROMPT for id_, task in suite.user_tasks.items()},
                    "injections": list(suite.injection_tasks),
                }
                for name, suite in self.suites.items()
            },
        }

    def begin(self, suite: str, user: str, injection: str | None) -> list[dict[str, Any]]:
        """Start a user task anew; gives the calls that solve it."""
        self._suite = self.suites[suite]
        self._user = self._suite.get_user_task_by_id(user)
        self._injection: Any = None if injection is None else self._suite.get_injection_task_by_id(injection)
        self._now = self._user.init_environment(self._fresh[suite].model_copy(deep=True))
        self._before = self._now.model_copy(deep=True)
        self._runtime = FunctionsRuntime(self._suite.tools)
        self._ran, self._hijacked = [], False
        return self._calls_of(self._user)

    def execute(self, tool: str, arguments: dict[str, Any]) -> str | None:
        """Run a tool; gives its error, if it has one."""
        error: str | None
        _, error = self._runtime.run_function(self._now, tool, arguments)
        self._ran.append(FunctionCall(function=tool, args=arguments))
        return error

    def hijack(self) -> list[dict[str, Any]]:
        """From now on the agent serves the injection; gives the calls that reach its goal."""
        self._hijacked = True
        return self._calls_of(self._injection)

    def judge(self) -> dict[str, Any]:
        """Whether the user's task is done, and whether the attack succeeded, by AgentDojo's own checks."""
        said = [self._user.GROUND_TRUTH_OUTPUT]
        if self._hijacked:
            said.append(self._injection.GROUND_TRUTH_OUTPUT)
        return {
            "done": self._check(self._user, said[:1]),
            "attacked": self._check(self._injection, said) if self._injection is not None else None,
        }

    def _check(self, task: Any, said: list[str]) -> bool:
        output = [{"type": "text", "content": text} for text in said if text]
        return bool(self._suite._check_task_result(task, output, self._before, self._now, self._ran))

    def _calls_of(self, task: Any) -> list[dict[str, Any]]:
        calls = task.ground_truth(self._now.model_copy(deep=True))
        if any(isinstance(value, FunctionCall) for call in calls for value in call.args.values()):
            raise ValueError(f"{task.ID}: a call within a call is not ruled on here")
        return [{"tool": call.function, "arguments": dict(call.args)} for call in calls]


def answer(dojo: Dojo, asked: dict[str, Any]) -> Any:
    """What one request gives."""
    if "begin" in asked:
        return dojo.begin(*asked["begin"])
    if "execute" in asked:
        return dojo.execute(**asked["execute"])
    return dojo.hijack() if "hijack" in asked else dojo.judge()


def main() -> None:
    """Answer until stdin ends."""
    out, sys.stdout = sys.stdout, sys.stderr  # what tools print is no answer
    dojo = Dojo()
    print(json.dumps(dojo.describe()), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(dojo, json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
