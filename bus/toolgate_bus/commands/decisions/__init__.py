"""`toolgate decisions`: the record of decisions listed, explained, exported and archived."""
