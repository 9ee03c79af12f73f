"""`toolgate run` and `toolgate chat`."""

__all__: list[str] = []
