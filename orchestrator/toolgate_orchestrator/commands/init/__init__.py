"""`toolgate init`: files to begin with."""

__all__: list[str] = []
