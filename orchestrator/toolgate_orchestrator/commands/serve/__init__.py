"""`toolgate serve`: the gate for any program, over HTTP on a socket of this machine.

`requests`, `rulings`, `authzen` and `openapi` are pure: they turn bodies into calls, and decisions into
bodies. `service` asks the gate, `open_calls` and `turns` keep what is under way, `app` and `routes` handle
HTTP, `server` the sockets, `cli` the command. Callers need neither the server of the bus nor its credentials.
"""
