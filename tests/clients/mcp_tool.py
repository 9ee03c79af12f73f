"""An MCP server on stdio with one tool, which leaves a file of that name in its folder."""

from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("here")


@server.tool()
def touch(name: str) -> str:
    """Leave a file of that name."""
    Path(name).touch()
    return "done"


server.run()
