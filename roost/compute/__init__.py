"""The embedded cloud, in rooms named after questions.

Read them in this order; a room may import those before it and no others (`pyproject.toml` holds the arrows):
`inventory` (what is there?), `groups` (who belongs together?), `scheduling` (where does it go?), `moves` (how does it
get elsewhere?), `answers` (why, what if, what is broken?) and `fronting` (what stands in front of a Nova).
"""
