"""Files that people write: read within bounds, checked by a model, their faults said by file and line."""
