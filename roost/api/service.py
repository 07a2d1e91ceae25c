"""What is Roost's own at the root: is it well, and what has it counted."""

import logging

import prometheus_client
from starlette.responses import JSONResponse, Response

from roost.api import web
from roost.api.errors import identity_body
from roost.api.frame import Api
from roost.api.routes import Call, Reply, Table
from roost.store import schema

logger = logging.getLogger(__name__)

routes = Table()


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
    """200 if requests can be served, else 503 and what is wrong."""
    problems = []
    try:
        async with call.services.database.begin() as connection:
            status = await connection.run_sync(schema.read)
        if status.problem:
            problems.append(status.problem)
    except Exception as error:
        # Where the database is, and as whom it is asked, is for the operator's eyes.
        logger.warning("the database does not answer", extra={"error": str(error.__cause__ or error)})
        problems.append("the database does not answer")
    body = {"status": "error" if problems else "ok", "problems": problems}
    return JSONResponse(body, 503 if problems else 200, headers={"Cache-Control": "no-store"})


@routes.get("/metrics", public=True)
async def metrics(call: Call) -> Reply:
    """Everything counted since this process started."""
    return Response(prometheus_client.generate_latest(), media_type=prometheus_client.CONTENT_TYPE_LATEST)


SERVICE_API = Api(name="service", prefix="", table=Table().include(routes, web.routes), error_body=identity_body)
