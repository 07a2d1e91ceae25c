"""Whose servers are they? What Roost keeps when it stands in front of a Nova.

`mirror` holds Nova's hosts, aggregates, groups and members in Roost's own tables; `reservations` keeps the places that
Nova's schedulers take. Imports every room but `answers`.
"""
