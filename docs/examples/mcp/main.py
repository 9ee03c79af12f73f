"""Call the server's tools through `toolgate mcp`, beside the scheduler `policy`: python main.py"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from mcp import Client, StdioServerParameters, stdio_client, types

HERE = Path(__file__).parent
NAMESPACE = ["--namespace", "example-mcp"]
CALLS = [
    ("read_note", {"name": "shopping"}),
    ("delete_note", {"name": "shopping"}),
    ("publish_note", {"name": "shopping"}),
]
TOOLGATE = ["-m", "toolgate_bus"]


@contextmanager
def scheduler(*words):
    """Run `toolgate scheduler run …` beside this program, from the moment that it rules."""
    command = [sys.executable, *TOOLGATE, "scheduler", "run", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        if not process.stdout.readline():  # it prints a line once it rules
            sys.exit(process.stderr.read())
        try:
            yield
        finally:
            process.terminate()
            process.communicate()


def proxy(folder):
    """Return how a client starts the proxy; behind `--` stands the server's own command."""
    options = ["--agent", "clerk", "--required", "policy", "--pin", f"{folder}/tools.json", *NAMESPACE]
    command = [*TOOLGATE, "mcp", *options, "--", sys.executable, str(HERE / "server.py")]
    return StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))


async def ask_person(context, params):
    """Answer a question as the client's user, who says yes."""
    question, _, _ = params.message.partition("\n")  # below it stands the call
    print(f"    A person is asked: {question} They accept.")
    return types.ElicitResult(action="accept")


async def call_tools(server, log):
    """Call each tool, and print what the client is told."""
    async with Client(stdio_client(server, log), elicitation_callback=ask_person) as client:
        for tool, arguments in CALLS:
            print(tool, json.dumps(arguments))
            result = await client.call_tool(tool, arguments)
            print(f"    {result.content[0].text}")


def main():
    """Run it once, from the first process to the last."""
    rules = ["policy", "--config", HERE / "rules.yaml", *NAMESPACE]
    with (
        tempfile.TemporaryDirectory() as folder,
        Path(folder, "log").open("w") as log,
        scheduler(*rules),
    ):
        asyncio.run(call_tools(proxy(folder), log))


if __name__ == "__main__":
    main()
