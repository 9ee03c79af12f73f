"""`toolgate demo`: everything at once, on real parts."""
