"""Who is asking: projects, users and tokens of Roost's own, for when there is no Keystone."""
