"""Goal pursuit."""
