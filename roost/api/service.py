"""What is Roost's own at the root: is it well, and what has it counted."""

import prometheus_client
from starlette.responses import JSONResponse, Response

from roost.api import web
from roost.api.errors import identity_body
from roost.api.frame import Api
from roost.api.routes import Call, Reply, Table

routes = Table()

_NEVER_STORED = {"Cache-Control": "no-store"}


@routes.get("/", public=True)
async def root(call: Call) -> Reply:
    """What is here: for browsers the dashboard, for others the addresses of the APIs."""
    if web.wants_page(call):
        return web.page(call)
    apis = ("identity", "compute", "image", "clustering")
    body = {"name": "roost", "links": {name: f"{call.base}/{name}" for name in apis}}
    return JSONResponse(body, headers={"Vary": "Accept"})


@routes.get("/healthcheck", public=True)
async def healthcheck(call: Call) -> Reply:
    """200 as long as this process answers at all: whether to restart it. It asks nothing of the database."""
    return JSONResponse({"status": "ok", "problems": []}, headers=_NEVER_STORED)


@routes.get("/readiness", public=True)
async def readiness(call: Call) -> Reply:
    """200 if requests can be served here, else 503 and what is wrong: whether to send it any."""
    found = await call.services.readiness.state()
    body = {
        "status": "error" if found.problems else "ok",
        "problems": list(found.problems),
        "fleet_age_seconds": found.fleet_age,
    }
    return JSONResponse(body, 503 if found.problems else 200, headers=_NEVER_STORED)


@routes.get("/metrics", public=True)
async def metrics(call: Call) -> Reply:
    """Everything counted since this process started."""
    return Response(prometheus_client.generate_latest(), media_type=prometheus_client.CONTENT_TYPE_LATEST)


SERVICE_API = Api(name="service", prefix="", table=Table().include(routes, web.routes), error_body=identity_body)
