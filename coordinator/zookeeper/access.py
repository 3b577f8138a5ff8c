"""How a client logs in to ZooKeeper: its user, TLS, and the ACL of the znodes that it creates."""

from __future__ import annotations

import importlib.util
import ssl
from dataclasses import dataclass, field
from typing import Final

from delayq.base.errors import ConfigError
from delayq.base.secrets import revealed
from delayq.config import Settings


@dataclass(frozen=True)
class Access:
    """`user` and `password` are for SASL (DIGEST-MD5). `tls` is 'yes', 'any-host' (any name in the certificate) or ''.

    With `own`, only clients with the same user may read or change the znodes that this one creates.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    tls: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    own: bool = False

    def context(self) -> ssl.SSLContext | None:
        """Read the files and return the TLS context; None without TLS. Raises ConfigError."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"DELAYQ_ZOOKEEPER_CA: {self.ca}: {_reason(error)}") from None
        context.check_hostname = self.tls == "yes"
        if self.certificate:
            try:
                # Without a password OpenSSL would ask for one at the terminal.
                context.load_cert_chain(self.certificate, self.key or None, self.key_password)
            except (OSError, ValueError) as error:
                files = " and ".join(one for one in (self.certificate, self.key) if one)
                raise ConfigError(
                    f"DELAYQ_ZOOKEEPER_CERTIFICATE, _KEY and _KEY_PASSWORD: {files}: {_reason(error)}"
                ) from None
        return context


OPEN: Final = Access()


def access_of(settings: Settings) -> Access:
    """The access that the settings describe; raises ConfigError if they contradict each other."""
    try:
        password = revealed(settings.zookeeper_password, "DELAYQ_ZOOKEEPER_PASSWORD")
        key_password = revealed(settings.zookeeper_key_password, "DELAYQ_ZOOKEEPER_KEY_PASSWORD")
    except ValueError as error:
        raise ConfigError(str(error)) from None
    user = settings.zookeeper_user
    if bool(user) != bool(password):
        raise ConfigError("DELAYQ_ZOOKEEPER_USER and DELAYQ_ZOOKEEPER_PASSWORD go together: give both, or neither")
    if user and importlib.util.find_spec("puresasl") is None:
        raise ConfigError("DELAYQ_ZOOKEEPER_USER needs the package pure-sasl: pip install pure-sasl")
    files = (settings.zookeeper_ca, settings.zookeeper_certificate, settings.zookeeper_key)
    if any(files) and not settings.zookeeper_tls:
        raise ConfigError("DELAYQ_ZOOKEEPER_CA, _CERTIFICATE and _KEY are for TLS: set DELAYQ_ZOOKEEPER_TLS=yes")
    if settings.zookeeper_key and not settings.zookeeper_certificate:
        raise ConfigError("DELAYQ_ZOOKEEPER_KEY goes with DELAYQ_ZOOKEEPER_CERTIFICATE")
    access = Access(
        user=user,
        password=password,
        tls=settings.zookeeper_tls,
        ca=settings.zookeeper_ca,
        certificate=settings.zookeeper_certificate,
        key=settings.zookeeper_key,
        key_password=key_password,
        own=settings.zookeeper_acl == "creator" or (settings.zookeeper_acl == "" and user != ""),
    )
    if access.own and not (user or access.certificate):
        raise ConfigError("DELAYQ_ZOOKEEPER_ACL=creator needs a user: set DELAYQ_ZOOKEEPER_USER")
    access.context()  # so that a wrong file is reported at the start
    return access


def _reason(error: Exception) -> str:
    """The reason of an error in words, without the content of files."""
    if isinstance(error, ssl.SSLError):
        return f"it is no such PEM file, or its password is another ({error.reason or 'unreadable'})"
    return getattr(error, "strerror", None) or "it cannot be used"
