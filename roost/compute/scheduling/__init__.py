"""Where does it go? From a request for servers to a committed claim. Read in this order:

`request` (what can be asked for), `scheduler` (projects take turns, batches run side by side), `batch` (look, decide,
claim), `attempt` (one request in it), `claim` (one round trip that takes it, or says what changed), `records` (what is
kept of the decision), `steps` and `lifecycle` (what happens to a claimed server until it runs), `servers` (finding
servers, and what may be done to them), `deleted` and `history` (what is known of them later). Imports `inventory` and
`groups`.
"""
