"""TLS of the gRPC server: its certificate and key, and who may sign those of its clients."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grpc


class TlsError(Exception):
    """A file that cannot be read, or has not what it should; names the file."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. With `client_ca` clients need a certificate that it has signed, else none is asked for."""

    certificate: Path
    key: Path
    client_ca: Path | None

    def credentials(self) -> grpc.ServerCredentials:
        """For a gRPC server.

        Raises:
            TlsError: a file cannot be read, or is not what it should be.
        """
        import grpc

        # gRPC says nothing of a wrong file: it refuses every client.
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
