"""`toolgate run` and `toolgate chat`."""
