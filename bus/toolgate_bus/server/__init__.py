"""Where the server is, and the embedded one."""
