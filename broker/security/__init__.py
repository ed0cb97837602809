"""TLS, SASL, ACLs, quotas and connection limits of the server: not there yet (see CHANGELOG.md)."""
