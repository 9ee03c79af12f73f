"""How it travels: the ports of both sides, and their twin in memory."""
