"""Certificates for tests: an authority of one's own, and what it issues for 127.0.0.1, as PEM files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from delayq.embedded.processes import LOCALHOST


@dataclass(frozen=True)
class Certificate:
    """`both` is a file with the key and the certificate."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Issues certificates into a folder; `file` is its own, by which others trust it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA(key_type=trustme.KeyType.RSA)  # some servers here take no other kind
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.file))

    def issue(self, name: str, *hosts: str, password: str = "") -> Certificate:
        """A certificate for these hosts (127.0.0.1 and localhost without), its key encrypted if there is a password."""
        issued = self._authority.issue_cert(
            *(hosts or (LOCALHOST, "localhost")), common_name=name, key_type=trustme.KeyType.RSA
        )
        plain = load_pem_private_key(issued.private_key_pem.bytes(), None)
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        key = plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
        made = Certificate(*(self._folder / f"{name}{end}.pem" for end in ("", "-key", "-both")))
        for file, content in ((made.certificate, chain), (made.key, key), (made.both, key + chain)):
            file.touch(mode=0o600)
            file.write_bytes(content)
        return made
