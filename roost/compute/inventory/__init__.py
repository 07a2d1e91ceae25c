"""What is there? Hosts and their room, aggregates, scopes, zones, flavors, images, key pairs, quotas and topologies.

`live_fleet` is all hosts as one process remembers them; `changes` numbers what happens to them; `claims` is the room
that servers hold. Imports `placement` and `store`, and no other room.
"""
