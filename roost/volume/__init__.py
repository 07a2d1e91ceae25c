"""A small block-storage service, so that tools find volumes, attach them and boot servers from them.

Nothing is stored on a disk: the hosts are simulated. The records are kept as Cinder keeps them: who owns a volume, how
large it is, where it came from, and which server has it.
"""
