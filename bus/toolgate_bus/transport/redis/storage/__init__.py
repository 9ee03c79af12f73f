"""Storage on the server: records that last, streams that are read, orders that stand."""
