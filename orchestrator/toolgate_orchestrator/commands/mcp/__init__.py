"""`toolgate mcp`: a proxy in front of MCP servers that has a guard rule on each tool call."""
