"""Transport of messages: the ports of both sides, and the bus in memory."""
