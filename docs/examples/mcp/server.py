"""A small MCP server by the official SDK. It knows nothing of Toolgate."""

from mcp.server import MCPServer

server = MCPServer("notes")


@server.tool()
def read_note(name: str) -> str:
    """Read a note."""
    return f"{name}: buy tea"


@server.tool()
def delete_note(name: str) -> str:
    """Delete a note."""
    return f"deleted {name}"


@server.tool()
def publish_note(name: str) -> str:
    """Show a note to everybody."""
    return f"published {name}"


if __name__ == "__main__":
    server.run()
