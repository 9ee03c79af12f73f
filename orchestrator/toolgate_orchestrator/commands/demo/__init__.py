"""`toolgate demo`: everything at once, on real parts."""

__all__: list[str] = []
