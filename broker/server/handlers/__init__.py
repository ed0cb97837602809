"""One module per API (or family of APIs); each marks its functions with `broker.server.registry.handles`."""
