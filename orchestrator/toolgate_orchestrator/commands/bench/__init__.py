"""`toolgate bench`: decisions beside the bare server."""

__all__: list[str] = []
