"""`toolgate serve`: the gate for any program, over HTTP on a socket of this machine.

`requests`, `rulings`, `authzen` and `openapi` are pure: bodies to calls, decisions to bodies. `service`
asks the gate, `open_calls` and `turns` keep what is under way, `app` and `routes` are the HTTP edge,
`server` the sockets, `cli` the command. Who talks to it needs no server of the bus and no credentials for
one.
"""
