"""The turn engine: what every loop shares, from the prompt to the answer."""

__all__: list[str] = []
