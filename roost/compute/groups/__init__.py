"""Who belongs together? Server groups, their policies and members, and the identifiers that tenants know aggregates by.

`group_cache` is what one process remembers of groups; `notifications` tells the outside of their changes. Imports
`inventory`.
"""
