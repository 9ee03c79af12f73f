"""`toolgate bench`: decisions beside the bare server."""
