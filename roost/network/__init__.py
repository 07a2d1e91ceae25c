"""A small network service, so that tools find the networks, ports and security groups that their servers have.

No traffic flows: the hosts are simulated. The records are kept as Neutron keeps them: who sees what, which port has
which address, and that no two have the same.
"""
