"""Policy types: what each checks and decides before and after an action, one module a type."""
