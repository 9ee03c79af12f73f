"""Files that people write: read within bounds, checked by a model, with faults told by file and line."""
