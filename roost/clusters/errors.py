"""Refusals in the clustering API's own words. The class's name is part of the answer, so it never changes."""

from roost.errors import Conflict, Forbidden, Invalid, NotFound


class BadRequest(Invalid):
    """The request cannot be carried out as written."""


class MultipleChoices(Invalid):
    """A name or a short id fits several things."""

    def __init__(self, identity: str) -> None:
        super().__init__(f"Multiple results found matching the query criteria '{identity}'. Please be more specific.")


class ResourceNotFound(NotFound):
    """There is no such thing, or not for this caller."""

    def __init__(self, noun: str, identity: str) -> None:
        super().__init__(f"The {noun} '{identity}' could not be found.")


class PolicyBindingNotFound(NotFound):
    """The policy is not attached to the cluster."""

    def __init__(self, policy: str, cluster: str) -> None:
        super().__init__(f"The policy '{policy}' is not found attached to the specified cluster '{cluster}'.")


class ResourceIsLocked(Conflict):
    """An action is at work on it."""

    def __init__(self, action: str, noun: str, identity: str) -> None:
        super().__init__(f"{action} for {noun} '{identity}' cannot be completed because it is already locked.")


class ActionConflict(Conflict):
    """Actions on it are waiting for their turn."""

    def __init__(self, action: str, target: str, others: list[str]) -> None:
        super().__init__(
            f"The {action} action for target {target} conflicts with the following action(s): {','.join(others)}"
        )


class ActionCooldown(Conflict):
    """A scaling policy is still resting."""


class ActionInProgress(Conflict):
    """It cannot be deleted in its present status."""

    def __init__(self, noun: str, identity: str, status: str) -> None:
        super().__init__(f"The {noun} '{identity}' is in status {status}.")


class ActionImmutable(Conflict):
    """The action has ended."""

    def __init__(self, action_id: str, status: str) -> None:
        super().__init__(
            f"Action ({action_id}) is in status ({status}) while expected status must be one of "
            "(INIT, READY, RUNNING, WAITING, WAITING_LIFECYCLE_COMPLETION, SUSPENDED)."
        )


class FeatureNotSupported(Conflict):
    """It cannot be done to this, in this state."""


class ResourceInUse(Conflict):
    """Something else depends on it."""

    def __init__(self, noun: str, identity: str, reason: str) -> None:
        super().__init__(f"The {noun} '{identity}' cannot be deleted: {reason}.")


class NotAllowed(Forbidden):
    """The caller may not do this."""

    code = "Forbidden"

    def __init__(self) -> None:
        super().__init__("You are not authorized to complete this operation.")
