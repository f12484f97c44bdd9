"""TLS of the gRPC server: its certificate and key, and the authority that signs its clients' certificates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grpc


class TlsError(Exception):
    """File that cannot be read, or has the wrong content. The message names it."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. With `client_ca` clients need a certificate signed by it; otherwise none is requested."""

    certificate: Path
    key: Path
    client_ca: Path | None

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials for a gRPC server.

        Raises:
            TlsError: If a file cannot be read, or has the wrong content.
        """
        import ssl  # here because most switches serve without TLS

        import grpc

        # gRPC does not report a wrong file: it rejects every client.
        check = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        key, certificate = _read(self.key), _read(self.certificate)
        try:
            check.load_cert_chain(self.certificate, self.key, password="")
        except (ssl.SSLError, ValueError) as error:
            raise TlsError(
                f"{self.certificate} and {self.key} are no certificate and its key in PEM form: {error}"
            ) from None
        ca = None
        if self.client_ca is not None:
            ca = _read(self.client_ca)
            try:
                check.load_verify_locations(self.client_ca)
            except ssl.SSLError as error:
                raise TlsError(f"{self.client_ca} has no certificate in PEM form: {error}") from None
        return grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=ca is not None)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror}") from None
