"""`toolgate replay`: recorded agent runs through the real loop."""

__all__: list[str] = []
