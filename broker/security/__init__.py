"""Who may talk to this broker: TLS and SASL of its listeners, and the users' SCRAM credentials.

Mechanisms and the order of an authentication are pure; sockets and requests are `broker.server`'s.
"""
