"""Run the desk on a scripted LLM, beside the scheduler `policy`: python main.py"""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from agent import desk, guard
from agents import ModelResponse, RunConfig, Runner, Usage
from agents.items import HandoffOutputItem, MessageOutputItem, ToolCallItem, ToolCallOutputItem
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

RULES = Path(__file__).with_name("rules.yaml")
STEPS = [
    ("transfer_to_billing", "{}"),
    ("refund", '{"order": "17", "amount": 40}'),
    ("refund", '{"order": "18", "amount": 400}'),
    "Order 17 is paid back. I could not pay for order 18.",
]


class ScriptedLLM(Model):
    """LLM that says `STEPS`, one after the other."""

    def __init__(self):
        self.steps = iter(STEPS)

    async def get_response(self, *_request, **_options):
        """Return the next step as a response."""
        step = next(self.steps)
        if isinstance(step, str):
            text = ResponseOutputText(type="output_text", text=step, annotations=[])
            said = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
        else:
            tool, arguments = step
            said = ResponseFunctionToolCall(
                type="function_call", call_id=f"{tool} {arguments}", name=tool, arguments=arguments
            )
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *_request, **_options):
        """Refuse: this program does not stream."""
        raise NotImplementedError


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


def show(items):
    """Print each call of the LLM, and below it what the LLM is told."""
    for item in items:
        match item:
            case ToolCallItem():
                print(item.raw_item.name, item.raw_item.arguments)
            case ToolCallOutputItem():
                print(f"    {item.output}")
            case HandoffOutputItem():
                print(f"{item.source_agent.name} hands over to {item.target_agent.name}")
            case MessageOutputItem():
                print(f"The LLM says: {item.raw_item.content[0].text}")


def main():
    """Run it once, from the first process to the last."""
    run = RunConfig(model=ScriptedLLM(), group_id="session-1", tracing_disabled=True)
    with scheduler("policy", "--config", RULES, "--namespace", guard.config.namespace), guard:
        result = Runner.run_sync(desk, "Pay back the orders 17 and 18.", run_config=run)
        show(result.new_items)


if __name__ == "__main__":
    main()
