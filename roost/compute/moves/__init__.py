"""How does it get elsewhere? Migrations, resizes, evacuations and shelving, all under the rules of the server's group.

`operations` has one function for each; `relocation` chooses and claims the new host. Imports `inventory`, `groups` and
`scheduling`.
"""
