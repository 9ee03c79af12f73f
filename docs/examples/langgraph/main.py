"""Run the clerk on a scripted LLM, beside the scheduler `policy`: python main.py"""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from agent import guard, make_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.types import Command

RULES = Path(__file__).with_name("rules.yaml")
REQUEST = "Refund the orders 17 and 18. Then delete order 17."
CALLS = [
    ("refund", {"order": "17", "amount": 40}),
    ("refund", {"order": "18", "amount": 400}),
    ("delete_order", {"order": "17"}),
]


class ScriptedLLM(GenericFakeChatModel):
    """An LLM that says what a list says."""

    def bind_tools(self, tools, **options):
        """Return itself: the list names the tools."""
        return self


def script():
    """Yield the LLM's answers: one call each, then a last word."""
    for number, (tool, arguments) in enumerate(CALLS):
        yield AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": f"call-{number}"}])
    yield AIMessage("The refunds are paid. I could not delete the order.")


@contextmanager
def scheduler(*words):
    """Run `toolgate scheduler run …` beside this program, from the moment that it rules."""
    command = [sys.executable, "-m", "toolgate_bus", "scheduler", "run", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        if not process.stdout.readline():  # it prints a line once it rules
            sys.exit(process.stderr.read())
        try:
            yield
        finally:
            process.terminate()
            process.communicate()


def show(message):
    """Print what the LLM calls or says, and below a call what the LLM is told."""
    if isinstance(message, ToolMessage):
        print(f"    {message.text}")
    elif isinstance(message, AIMessage):
        for call in message.tool_calls:
            print(call["name"], json.dumps(call["args"]))
        if message.text:
            print(f"The LLM says: {message.text}")


def run(agent, thread):
    """Run a conversation to its end. A person says yes to every question."""
    shown, say = 0, {"messages": [("user", REQUEST)]}
    while say is not None:
        state, say = agent.invoke(say, thread), None
        for message in state["messages"][shown:]:
            show(message)
        shown = len(state["messages"])
        for question in state.get("__interrupt__", ()):
            (action,) = question.value["action_requests"]
            print(f"    A person is asked: {action['description']} They approve.")
            say = Command(resume={"decisions": [{"type": "approve"}]})


def main():
    """Run it once, from the first process to the last."""
    agent = make_agent(ScriptedLLM(messages=script()))
    with scheduler("policy", "--config", RULES, "--namespace", guard.config.namespace), guard:
        run(agent, {"configurable": {"thread_id": "session-1"}})


if __name__ == "__main__":
    main()
