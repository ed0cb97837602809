"""REST of the links of a process: how they stand, pause, resume, restart, settings; with an OpenAPI page."""
