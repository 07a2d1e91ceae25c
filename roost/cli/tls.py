"""TLS of the API's listener: the certificate is read at start and again on SIGHUP."""

import logging
import ssl

from roost.config import Settings
from roost.errors import Unavailable

logger = logging.getLogger(__name__)


class Tls:
    """A certificate and its key, in files that may be replaced while Roost serves."""

    def __init__(self, certificate: str, key: str) -> None:
        self._files = certificate, key
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.set_alpn_protocols(["http/1.1"])
        self._read(self.context)

    @classmethod
    def of(cls, settings: Settings) -> "Tls | None":
        """What the configuration asks for."""
        if settings.tls_cert is None and settings.tls_key is None:
            return None
        if settings.tls_cert is None or settings.tls_key is None:
            raise Unavailable("TLS needs a certificate and its key: set both [api] tls_cert and [api] tls_key.")
        return cls(settings.tls_cert, settings.tls_key)

    def reload(self) -> None:
        """Use what the files hold now for new connections. Files that cannot be used change nothing."""
        try:
            # A certificate beside another's key would be half taken in: try both elsewhere first.
            self._read(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
            self._read(self.context)
        except Unavailable as error:
            logger.error("the certificate was not replaced", extra={"reason": error.message})
        else:
            logger.info("the certificate was read again")

    def _read(self, context: ssl.SSLContext) -> None:
        certificate, key = self._files
        try:
            context.load_cert_chain(certificate, key)
        except OSError as error:  # ssl.SSLError is one
            raise Unavailable(
                f"Cannot use the certificate {certificate} with the key {key}: {error.strerror or error}. "
                "Check [api] tls_cert and tls_key."
            ) from None
