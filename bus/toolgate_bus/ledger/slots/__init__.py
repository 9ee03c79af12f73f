"""Queues: slots, and the calls that wait for one."""
