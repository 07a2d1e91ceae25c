"""Where does it go? From a request for servers to a committed claim. Read in this order:

`request` (what can be asked for), `scheduler` (requests queue and share transactions), `batch` (one transaction, step
by step), `attempt` (one request in it: decided, then written), `records` (what is kept of the decision), `lifecycle`
(what happens to a claimed server until it runs) and `servers` (finding servers, and what may be done to them). Imports
`inventory` and `groups`.
"""
