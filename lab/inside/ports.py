"""Neutron's part of the lab: a mechanism driver that binds every port on every host, without an agent."""

from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api


class LabMechanismDriver(api.MechanismDriver):
    """Every port is bound, and active at once."""

    def initialize(self) -> None:
        """Nothing to prepare."""

    @property
    def connectivity(self) -> str:
        """What Neutron stores of it."""
        return str(portbindings.CONNECTIVITY_L2)

    def bind_port(self, context: api.PortContext) -> None:
        """To the first segment."""
        for segment in context.segments_to_bind[:1]:
            context.set_binding(
                segment[api.ID],
                portbindings.VIF_TYPE_OTHER,
                {portbindings.CAP_PORT_FILTER: True},
                status=constants.PORT_STATUS_ACTIVE,
            )
