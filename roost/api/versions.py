"""Microversions: what a client may ask for, how it asks, and what we answer."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from starlette.datastructures import Headers

from roost.errors import Invalid, NotAcceptable

# Longer numbers are no versions, and reading a very long one is refused by Python itself.
_FORM = re.compile(r"([1-9]\d{0,8})\.([1-9]\d{0,8}|0)")


class Version(NamedTuple):
    """A microversion; compares as numbers do."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> "Version":
        """Read `2.64`."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise Invalid(f"API Version String {text} is of invalid format. Must be of format MajorNum.MinorNum.")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, slots=True)
class Negotiation:
    """How one API negotiates: its service type, its range, and the older header that it also understands."""

    service: str
    oldest: Version
    newest: Version
    legacy_header: str | None = None
    gap: tuple[Version, Version] | None = None
    """Numbers between these (exclusive) are unused: those below are Nova's, those above are ours."""
    quote: str = ""

    def choose(self, headers: Headers) -> Version:
        """The version that this request is served in."""
        text = self.asked(headers)
        if text is None:
            return self.oldest
        if text == "latest":
            return self.newest
        version = Version.parse(text)
        if not self.serves(version):
            raise NotAcceptable(self.unsupported(version))
        return version

    def serves(self, version: Version) -> bool:
        """Whether there is such a version."""
        unused = self.gap is not None and self.gap[0] < version < self.gap[1]
        return self.oldest <= version <= self.newest and not unused

    def unsupported(self, version: Version) -> str:
        """What to say of a version that is not served."""
        quoted = [f"{self.quote}{number}{self.quote}" for number in (version, self.oldest, self.newest)]
        return f"Version {quoted[0]} is not supported by the API. Minimum is {quoted[1]} and maximum is {quoted[2]}."

    def asked(self, headers: Headers) -> str | None:
        """The version that a request names, as it names it."""
        for value in headers.getlist("openstack-api-version"):
            for part in value.split(","):
                service, _, version = part.strip().partition(" ")
                if service == self.service:
                    return version.strip()
        return headers.get(self.legacy_header) if self.legacy_header else None

    def response_headers(self, version: Version | None) -> dict[str, str]:
        """What every answer carries: the version served (if one was settled on) and what it varies by."""
        names = ["OpenStack-API-Version", *([self.legacy_header] if self.legacy_header else [])]
        headers = {"Vary": ", ".join(names)}
        if version is not None:
            headers["OpenStack-API-Version"] = f"{self.service} {version}"
            if self.legacy_header:
                headers[self.legacy_header] = str(version)
        return headers


COMPUTE = Negotiation(
    service="compute",
    oldest=Version(2, 1),
    newest=Version(2, 1003),
    legacy_header="X-OpenStack-Nova-API-Version",
    gap=(Version(2, 104), Version(2, 1001)),
)
VOLUME = Negotiation(service="volume", oldest=Version(3, 0), newest=Version(3, 71))
CLUSTERING = Negotiation(service="clustering", oldest=Version(1, 0), newest=Version(1, 14), quote="'")
