"""Profile types: what the nodes of a cluster are, and how they come, change and go; one module a type."""
