"""An MCP server on stdio with two tools: one leaves a file of that name in its folder, one reads it."""

from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("here")


@server.tool()
def touch(name: str) -> str:
    """Leave a file of that name."""
    Path(name).touch()
    return "done"


@server.tool()
def read(name: str) -> str:
    """What is in a file of that name."""
    return Path(name).read_text()


server.run()
