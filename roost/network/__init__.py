"""A small network service, so that tools find the networks, ports and security groups that their servers have.

Nothing is wired: the hosts are simulated. What is kept is kept as Neutron does: who sees what, which port has which
address, and that no two have the same.
"""
