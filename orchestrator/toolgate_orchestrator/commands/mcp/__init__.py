"""`toolgate mcp`: a proxy in front of MCP servers, which has each call of a tool ruled on."""
