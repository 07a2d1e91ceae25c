"""Receivers: actions on a cluster that anyone with the secret address can trigger."""

import hashlib
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from roost.clusters import clusters, lookup
from roost.clusters.actions.requests import Owner
from roost.clusters.clusters import RequestContext
from roost.clusters.errors import BadRequest, MultipleChoices, ResourceNotFound
from roost.clusters.ids import new_id
from roost.clusters.records import RECEIVERS, ReceiverRecord
from roost.clusters.states import ActionName
from roost.errors import NotFound
from roost.identity.tokens import Caller
from roost.store.tables.clusters import receivers
from roost.suggestions import did_you_mean, known_names

TYPES = ("webhook", "message")

Permit = Callable[[Caller, str], None]
"""Raises `Forbidden` unless this caller may have this action done."""

Trigger = Callable[[RequestContext, str, Mapping[str, Any]], Awaitable[str]]


async def _scale(request: RequestContext, cluster_id: str, inputs: Mapping[str, Any], *, action: ActionName) -> str:
    given = inputs.get("count")
    try:
        count = None if given is None else int(given)
    except (TypeError, ValueError):
        raise BadRequest(f"The value for count must be an integer: '{given}'.") from None
    if count is not None and count < 0:
        raise BadRequest("Value must be >= 0 for field 'count'.")
    return await clusters.scale(request, cluster_id, action, count)


async def _resize(request: RequestContext, cluster_id: str, inputs: Mapping[str, Any]) -> str:
    given = {"strict": False, **inputs}
    try:
        whole = {key: int(given[key]) for key in ("min_size", "max_size", "min_step") if given.get(key) is not None}
        exact = {"number": float(given["number"])} if given.get("number") is not None else {}
        if not all(map(math.isfinite, exact.values())):
            raise ValueError(f"'{given['number']}' is not a number of nodes")
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRequest(f"The inputs of the resize cannot be understood: {error}.") from None
    return await clusters.resize(request, cluster_id, {**given, **whole, **exact})


async def _delete(request: RequestContext, cluster_id: str, inputs: Mapping[str, Any]) -> str:
    return await clusters.delete(request, cluster_id, force=False)


ACTIONS: Mapping[str, Trigger] = {
    **{name: partial(_scale, action=name) for name in (ActionName.CLUSTER_SCALE_OUT, ActionName.CLUSTER_SCALE_IN)},
    ActionName.CLUSTER_RESIZE: _resize,
    ActionName.CLUSTER_CHECK: clusters.check,
    ActionName.CLUSTER_RECOVER: clusters.recover,
    ActionName.CLUSTER_DELETE: _delete,
}
"""What can be triggered."""


def check_action(action: str) -> None:
    """Refuse what cannot be triggered."""
    if action not in ACTIONS:
        # An action that exists but cannot be triggered gets no suggestion: the most similar name may be the deletion of
        # the cluster.
        meant = "" if action in set(ActionName) else did_you_mean(action, ACTIONS)
        raise BadRequest(f"Illegal action '{action}' specified{meant or '.'}")


ALERT_STATUS = "alert_status"
"""The parameter of a webhook that says at which status of an alert it acts. It is not an input of the action."""
ALERT_STATUSES = ("firing", "resolved")


def check_params(params: Mapping[str, Any]) -> None:
    """Refuse a status that no alert has."""
    wanted = params.get(ALERT_STATUS, ALERT_STATUSES[0])
    if wanted not in ALERT_STATUSES:
        raise BadRequest(f"'{wanted}' is not an {ALERT_STATUS}: {known_names(str(wanted), ALERT_STATUSES)}")


async def create(request: RequestContext, given: Mapping[str, Any]) -> tuple[ReceiverRecord, str]:
    """Make a receiver; the answer has the only copy of its secret."""
    kind, cluster_id = given["type"], None
    secret = secrets.token_urlsafe(24)
    if kind == "webhook":
        for key, words in (("cluster_id", "Cluster identity"), ("action", "Action name")):
            if not given.get(key):
                raise BadRequest(f"{words} is required for creating webhook receiver.")
    if given.get("action"):
        check_action(given["action"])
    check_params(given.get("params") or {})
    if given.get("cluster_id"):
        try:
            found = await request.find(given["cluster_id"], lock=False)
        except ResourceNotFound:
            raise BadRequest(f"The referenced cluster '{given['cluster_id']}' could not be found.") from None
        except MultipleChoices as error:
            raise BadRequest(error.message) from None
        cluster_id = found.id
    values = {
        "id": new_id(),
        "name": given["name"],
        "type": kind,
        "cluster_id": cluster_id,
        "action": given.get("action"),
        "params": given.get("params") or {},
        "secret": digest(secret),
        **Owner.of(request.caller).columns,
    }
    return await RECEIVERS.insert(request.connection, values), secret


def digest(secret: str) -> str:
    """What is stored of a secret."""
    return f"sha256:{hashlib.sha256(secret.encode(errors='surrogatepass')).hexdigest()}"


async def find(request: RequestContext, identity: str) -> ReceiverRecord:
    """The receiver that an address names."""
    return await lookup.find(request.connection, RECEIVERS, identity, request.caller)


async def update(request: RequestContext, identity: str, given: Mapping[str, Any]) -> ReceiverRecord:
    """Change the name of a receiver, or what it triggers."""
    row = await find(request, identity)
    changes = {key: value for key, value in given.items() if value != getattr(row, key)}
    if not changes:
        raise BadRequest("No property needs an update.")
    if "action" in changes:
        check_action(changes["action"])
    check_params(changes.get("params") or {})
    return await RECEIVERS.update(request.connection, row.id, changes)


async def delete(request: RequestContext, identity: str) -> None:
    """Delete a receiver: its address answers 404 from now on."""
    row = await find(request, identity)
    await request.connection.execute(receivers.delete().where(receivers.c.id == row.id))


async def trigger(
    request: RequestContext,
    receiver_id: str,
    secret: str,
    query: Mapping[str, Any],
    body: Mapping[str, Any],
    permit: Permit,
) -> str | None:
    """Do what a webhook is for, in the name of its owner; the caller needs to know no more than its address.

    A webhook with an `alert_status` reads the body as an alert, as Prometheus' Alertmanager and Grafana send it, does
    nothing for one of another status, and takes no inputs from it."""
    mine = (receivers.c.id == receiver_id, receivers.c.type == "webhook")
    row = next(iter(await RECEIVERS.read(request.connection, *mine)), None)
    if row is None or not (secrets.compare_digest(row.secret, digest(secret)) or _is_of_senlin(request, row, secret)):
        raise NotFound(f"The receiver '{receiver_id}' could not be found.")
    inputs = {**row.params, **query}
    if ALERT_STATUS not in row.params:
        inputs |= body
    elif body.get("status") not in ALERT_STATUSES:
        known = " or ".join(ALERT_STATUSES)
        raise BadRequest(f"This webhook is for alerts: the body must have a 'status', which is {known}.")
    elif body["status"] != row.params[ALERT_STATUS]:
        return None
    inputs.pop(ALERT_STATUS, None)
    return await _do(request, row, row.action or "", row.cluster_id or "", inputs, permit)


def _is_of_senlin(request: RequestContext, row: ReceiverRecord, secret: str) -> bool:
    """Whether this is an address that Senlin gave out, without a token, and that is still to be answered."""
    return request.settings.senlin_webhooks and not secret and "alarm_url" in row.channel


async def notify(request: RequestContext, identity: str, message: Mapping[str, Any], permit: Permit) -> str | None:
    """Take a message for a message receiver: which action on which cluster, and with what."""
    row = await find(request, identity)
    if row.type != "message":
        raise BadRequest("Notifying non-message receiver is not allowed.")
    action = message.get("action") or row.action
    cluster_id = message.get("cluster") or row.cluster_id
    if not message or not action or not cluster_id:
        return None
    check_action(str(action))
    inputs = {**row.params, **(message.get("params") or {})}
    return await _do(request, row, str(action), str(cluster_id), inputs, permit)


async def _do(
    request: RequestContext,
    row: ReceiverRecord,
    action: str,
    cluster_id: str,
    inputs: Mapping[str, Any],
    permit: Permit,
) -> str:
    owner = Caller(row.user_id, "", row.project_id, None, ("member", "reader"))
    permit(owner, action)
    return await ACTIONS[action](replace(request, caller=owner), cluster_id, inputs)
