"""`toolgate notify`: post what people should know of a fleet to webhooks and services, at least once.

`judges` find incidents in what `fleet_sources` read; `notification` gathers them, and has the words. `outbox`
keeps on the server of the bus all that must outlast the process, under a lease. `receivers` has what a
`webhook` and an `apprise_service` have in common; `service` is the loop, `cli` the command.
"""
