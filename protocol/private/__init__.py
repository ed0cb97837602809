"""Requests that only isthmus speaks to isthmus, under keys from 10,000 on, and their table.

Written by hand, unlike `protocol.messages`, and read by the same codec. Brokers name them in ApiVersions only
to clients that call themselves isthmus (KIP-511): other software has no use for keys that it does not know.
"""
