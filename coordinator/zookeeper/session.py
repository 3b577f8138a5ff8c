"""A client of ZooKeeper with one session: a few calls, each with a timeout, that raise delayq's errors."""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import ceil
from typing import Any, Final

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    SASLException,
    SessionClosedRequireSaslError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from coordinator.errors import CoordinatorError, CoordinatorRefused
from coordinator.zookeeper.access import OPEN, Access
from delayq.base.errors import ConfigError

#: The longest wait in seconds. A signal that comes just before a wait begins is handled only after it.
LOOK_EVERY: Final = 0.5
#: kazoo calls this with an event, in one of its threads. It must not block.
Watch = Callable[[Any], None]

# kazoo logs every attempt to connect, and the coordinator logs the result. Add a handler to see both.
_kazoo_log = logging.getLogger("delayq.kazoo")
_kazoo_log.addHandler(logging.NullHandler())


class Znode(msgspec.Struct, frozen=True):
    """A znode: its data, the transaction that created it, whether it belongs to this session, and how often it was written."""

    data: bytes
    czxid: int
    ours: bool
    version: int


#: The errors of a refused user. kazoo raises them in calls that wait, and else only writes them to its log.
_REFUSED_USER = (AuthFailedError, SASLException, SessionClosedRequireSaslError)


class _Listener(logging.Handler):
    """Notices in kazoo's log that the user was refused."""

    refused_user = False

    def emit(self, record: logging.LogRecord) -> None:
        """Check the errors of a log record."""
        raised = [record.exc_info[1] if record.exc_info else None, *(record.args or ())]
        self.refused_user = self.refused_user or any(isinstance(one, _REFUSED_USER) for one in raised)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, and connections with the TLS of `access`.

    kazoo's own TLS trusts the system's authorities besides the given one, and does not report why it failed.
    """

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access
        self.refusal = ""

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start a thread. An error of kazoo that ends it is in kazoo's log already."""

        def run() -> None:
            with suppress(KazooException):
                func(*args, **kwargs)

        return super().spawn(run)

    def create_connection(self, address: Any, timeout: float, hostname: str = "", **_: Any) -> Any:
        """Return a connected socket, with TLS if it is set."""
        sock = super().create_connection(address=address, timeout=timeout)
        where = f"{hostname}:{address[1]}"
        try:
            context = self._access.context()
            secured = sock if context is None else context.wrap_socket(sock, server_hostname=hostname)
        except ConfigError as error:  # a file that was readable at the start
            sock.close()
            self.refusal = str(error)
            raise OSError(self.refusal) from None
        except OSError as error:
            sock.close()
            if isinstance(error, ssl.SSLCertVerificationError):
                self.refusal = (
                    f"the certificate of the ZooKeeper at {where} is not trusted: {error.verify_message}; "
                    "set DELAYQ_ZOOKEEPER_CA to the authority to trust"
                )
            elif isinstance(error, ssl.SSLError):
                self.refusal = (
                    f"the ZooKeeper at {where} does not accept TLS: {error.reason or 'it closed the connection'}"
                )
            raise
        self.refusal = ""
        return secured


class Session:
    """Connects, and reconnects until it is closed. A new session follows one that expired.

    `state_changed` gets kazoo's states in kazoo's connection thread, which it must not block. 'CONNECTED' and 'SUSPENDED'
    are states of a session that may live on. 'LOST' means that it has ended: a server reported that, or kazoo's thread has
    ended. The outcome of a call that raised CoordinatorError is unknown, so read before you repeat it. After
    CoordinatorRefused somebody has to correct a setting first.
    """

    def __init__(
        self, hosts: str, timeout: int, state_changed: Callable[[Session, str], None], access: Access = OPEN
    ) -> None:
        self._hosts = hosts
        self._seconds = timeout / 1000
        self._access = access
        self._handler = _Handler(access)
        self._listener = _Listener()
        logger = logging.Logger(_kazoo_log.name)  # only for this session
        logger.parent = _kazoo_log
        logger.addHandler(self._listener)
        login = {"mechanism": "DIGEST-MD5", "username": access.user, "password": access.password}
        self._client = KazooClient(
            hosts=hosts,
            timeout=self._seconds,
            logger=logger,
            handler=self._handler,
            use_ssl=bool(access.tls),
            sasl_options=login if access.user else None,
            default_acl=CREATOR_ALL_ACL if access.own else None,
            # kazoo waits up to an hour between two attempts by default.
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=1),
        )
        self._client.add_listener(lambda state: state_changed(self, str(state)))

    def open(self) -> None:
        """Connect; raises CoordinatorError if no server answers within the session's timeout."""
        connected, waits = self._client.start_async(), ceil(self._seconds / LOOK_EVERY)
        if not any(connected.wait(self._seconds / waits) for _ in range(waits)):
            self.close()
            raise self._refusal() or CoordinatorError(
                f"no ZooKeeper of {self._hosts} answered within {self._seconds:g} s: "
                "start it, or correct DELAYQ_ZOOKEEPER"
            )

    def close(self) -> None:
        """End the session, within 10 s. ZooKeeper removes all its znodes at once."""
        with suppress(KazooException, OSError, AttributeError):  # kazoo raises AttributeError if it never connected
            self._client.stop()
        with suppress(Exception):  # kazoo raises a plain Exception if its thread did not end in time
            self._client.close()

    def abandon(self) -> None:
        """End the session in another thread, which may take 10 s. It may not have begun."""
        threading.Thread(target=self.close, name="abandoned-session", daemon=True).start()

    @property
    def connected(self) -> bool:
        """Whether there is a connection with a session now."""
        return bool(self._client.connected)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def create(self, path: str, data: bytes) -> Znode | None:
        """Create an ephemeral znode and its parents; None if it exists."""
        try:
            asked = self._kazoo().create_async(path, data, ephemeral=True, makepath=True, include_data=True)
            _, stat = self._do(asked, NodeExistsError)
        except NodeExistsError:
            return None
        return Znode(data, stat.czxid, True, stat.version)

    def look(self, path: str, watch: Watch | None = None) -> Znode | None:
        """Return the znode without its data; None if there is none. `watch` is called once, when that changes."""
        stat = self._do(self._kazoo().exists_async(path, watch=watch))
        return None if stat is None else self._node(b"", stat)

    def read(self, paths: Iterable[str], watch: Watch | None = None) -> dict[str, Znode]:
        """Read these znodes at the same time, and return those that exist."""
        asked = [(path, self._kazoo().get_async(path, watch=watch)) for path in paths]
        found = {}
        for path, reply in asked:
            with suppress(NoNodeError):
                data, stat = self._do(reply, NoNodeError)
                found[path] = self._node(data, stat)
        return found

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names below a znode; none if it does not exist."""
        try:
            return sorted(self._do(self._kazoo().get_children_async(path, watch=watch), NoNodeError))
        except NoNodeError:
            return []

    def below(self, path: str, names: Watch, each: Watch | None = None) -> dict[str, Znode]:
        """Read the znodes below another, by name. `names` is called when a name comes or goes, `each` when data changes."""
        paths = {f"{path}/{name}": name for name in self.children(path, names)}
        return {paths[found]: node for found, node in self.read(paths, each).items()}

    def write(self, path: str, data: bytes) -> None:
        """Write data into a znode, if it exists."""
        with suppress(NoNodeError):
            self._do(self._kazoo().set_async(path, data), NoNodeError)

    def keep(self, path: str, data: bytes, before: Znode | None) -> bool:
        """Write data into a znode that outlives this session; False if it has changed since it was read as `before`."""
        try:
            if before is None:
                self._do(self._kazoo().create_async(path, data, makepath=True), NodeExistsError)
            else:
                self._do(self._kazoo().set_async(path, data, before.version), NoNodeError, BadVersionError)
        except (NodeExistsError, NoNodeError, BadVersionError):
            return False
        return True

    def delete(self, path: str) -> None:
        """Remove a znode, if it exists."""
        with suppress(NoNodeError):
            self._do(self._kazoo().delete_async(path), NoNodeError)

    def _node(self, data: bytes, stat: Any) -> Znode:
        mine = self._client.client_id
        return Znode(data, stat.czxid, mine is not None and stat.ephemeralOwner == mine[0], stat.version)

    def _kazoo(self) -> KazooClient:
        """Return the client if it is connected, because kazoo would let a call wait for the connection."""
        if not self._client.connected:
            raise self._refusal() or CoordinatorError(f"ZooKeeper is away ({self._hosts}): no connection")
        return self._client

    def _do(self, reply: Any, *answers: type[KazooException]) -> Any:
        """Wait for a reply. The errors in `answers` are answers; with any other error ZooKeeper counts as away."""
        try:
            return reply.get(timeout=self._seconds)
        except answers:
            raise
        except _REFUSED_USER:
            raise self._refused_user_error() from None
        except NoAuthError:
            raise CoordinatorRefused(
                f"ZooKeeper ({self._hosts}) denies {self._user} access to existing znodes: see their ACLs (getAcl), or set "
                "DELAYQ_ZOOKEEPER_USER to a user that they name"
            ) from None
        except (KazooException, KazooTimeoutError) as error:
            reason = str(error) or type(error).__name__
            away = CoordinatorError(f"ZooKeeper is away ({self._hosts}): {reason}")
            raise (self._refusal() or away) from None

    @property
    def _user(self) -> str:
        return f"the user {self._access.user}" if self._access.user else "a client without a user"

    def _refusal(self) -> CoordinatorRefused | None:
        """Why there is no connection, if ZooKeeper refuses the client or the client does not trust it."""
        if self._handler.refusal:
            return CoordinatorRefused(self._handler.refusal)
        return self._refused_user_error() if self._listener.refused_user else None

    def _refused_user_error(self) -> CoordinatorRefused:
        return CoordinatorRefused(
            f"ZooKeeper ({self._hosts}) refuses {self._user}: check DELAYQ_ZOOKEEPER_USER and DELAYQ_ZOOKEEPER_PASSWORD"
        )
