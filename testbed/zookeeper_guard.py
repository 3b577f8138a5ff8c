"""The access control of a ZooKeeper server: users with passwords, and TLS on a port of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from delayq.embedded.processes import LOCALHOST
from testbed.errors import ServerMissing
from testbed.jars import cache

_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"


@dataclass(frozen=True)
class Guard:
    """`users` (name to password) have to log in by SASL, if there are any.

    `certificate` is a PEM file with a key (PKCS #8) and its certificates. `authority` is a PEM file with the issuer of the
    clients' certificates; with it each client has to show a certificate.
    """

    users: Mapping[str, str] = field(default_factory=dict)
    certificate: Path | None = None
    authority: Path | None = None

    def settings(self, secure_port: int) -> dict[str, str]:
        """Lines of zoo.cfg; raises ServerMissing."""
        found: dict[str, str] = {}
        if self.users:
            found["authProvider.sasl"] = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
            found["fips-mode"] = "false"  # which would refuse DIGEST-MD5
            found["enforce.auth.enabled"] = "true"
            found["enforce.auth.schemes"] = "sasl"
        if self.certificate is not None:
            if not any(cache("zookeeper").glob("netty-handler-*.jar")):
                raise ServerMissing("ZooKeeper's TLS needs Netty: fetch it by `./dev brokers fetch zookeeper`")
            found["serverCnxnFactory"] = "org.apache.zookeeper.server.NettyServerCnxnFactory"
            found["secureClientPort"] = str(secure_port)
            found["secureClientPortAddress"] = LOCALHOST
            found["ssl.keyStore.location"] = str(self.certificate)
            found["ssl.keyStore.type"] = "PEM"
            found["ssl.clientAuth"] = "none" if self.authority is None else "need"
            if self.authority is not None:
                found["ssl.trustStore.location"] = str(self.authority)
                found["ssl.trustStore.type"] = "PEM"
        return found

    def flags(self, folder: Path) -> list[str]:
        """Flags of Java, which reads the users from a file in this folder."""
        if not self.users:
            return []
        users = "".join(f'    user_{name}="{password}"\n' for name, password in self.users.items())
        file = folder / "jaas.conf"
        file.touch(mode=0o600)
        file.write_text(f"Server {{\n    {_LOGIN} required\n{users}    ;\n}};\n")
        return [f"-Djava.security.auth.login.config={file}"]
