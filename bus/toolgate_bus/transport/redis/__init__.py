"""The transport over Redis Streams; the only room that speaks to a server."""
