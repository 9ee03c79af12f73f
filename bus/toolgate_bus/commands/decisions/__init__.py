"""`toolgate decisions`: the record of decisions listed, explained, exported and archived."""

__all__: list[str] = []
