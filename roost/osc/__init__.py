"""The plug-in of the `openstack` command: policy scopes, answers about server groups, and clusters."""
