"""Why, what if, what is broken? Explanations, plans, audits, repairs and the map of the fleet.

Nothing here is on the path of a create. Imports every room but `fronting`.
"""
