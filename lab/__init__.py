"""A real, small OpenStack on this machine: for the tests and the measurements that need one. See README.md."""
