"""`toolgate init`: files to begin with."""
