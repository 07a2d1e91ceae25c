"""A small block-storage service, so that tools find volumes, attach them and boot servers from them.

Nothing is stored on a disk: the hosts are simulated. What is kept is kept as Cinder does: who owns a volume, how large
it is, where it came from, and which server has it.
"""
