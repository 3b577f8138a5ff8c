"""A connection of pika that tries every address, and that no bytes can break: they end it, or refuse one message."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectionWorkflow, AMQPConnectionWorkflowFailed
from pika.exceptions import StreamLostError

from delayq.targets.rabbitmq.errors import NoAddress
from delayq.targets.rabbitmq.received import ReceivedProperties

_FRAME = Struct(">BHI")  # type, channel, size
_CONTENT = Struct(">HHQ")  # class, weight, size of the body
_HEADER: Final = 2
_BASIC: Final = 60
_END: Final = b"\xce"


class BrokerStream(pika.SelectConnection):  # type: ignore[misc]  # pika has no types
    """A connection by `create_connection`, or as the `_impl_class` of a blocking one.

    Messages have `ReceivedProperties`. If no address can be used, the last of the exceptions is a `NoAddress`.
    """

    @classmethod
    def create_connection(
        cls, connection_configs: Any, on_done: Any, custom_ioloop: Any = None, workflow: Any = None
    ) -> Any:
        """Start to connect, to the first of the addresses that can be used."""
        workflow = workflow or _EveryAddress()
        return super().create_connection(connection_configs, on_done, custom_ioloop, workflow)

    def _on_data_available(self, data_in: bytes) -> None:
        """Read the received bytes. An error there loses this connection, and does not reach the loop."""
        try:
            super()._on_data_available(data_in)
        except Exception as error:
            if not self.is_closed:
                self._terminate_stream(
                    StreamLostError(f"what the broker sent cannot be handled: {error!r}"[:200], error)
                )

    def _read_frame(self) -> tuple[int, Any]:
        """The next frame and its size; 0 and None if it is not there in full."""
        buffer = self._frame_buffer
        if len(buffer) >= _FRAME.size and buffer[0] == _HEADER:
            _, channel, size = _FRAME.unpack_from(buffer)
            end = _FRAME.size + size
            if len(buffer) <= end:
                return 0, None
            if buffer[end : end + 1] == _END and size >= _CONTENT.size:
                class_id, _, body_size = _CONTENT.unpack_from(buffer, _FRAME.size)
                if class_id == _BASIC:
                    properties = ReceivedProperties(buffer[_FRAME.size + _CONTENT.size : end])
                    return end + 1, pika.frame.Header(channel, body_size, properties)
        found: tuple[int, Any] = super()._read_frame()
        return found


class _EveryAddress(AMQPConnectionWorkflow):  # type: ignore[misc]  # pika has no types
    """Tries each address of each host in turn. pika's own gives up at the first host whose name is not known."""

    def __init__(self) -> None:
        super().__init__()
        self._failures: list[tuple[str, BaseException]] = []

    def _failed(self, error: BaseException) -> None:
        parameters = self._connection_configs[self._current_config_index]
        self._failures.append((f"{parameters.host}:{parameters.port}", error))

    def _on_getaddrinfo_async_done(self, addrinfos_or_exc: Any) -> None:
        if isinstance(addrinfos_or_exc, BaseException):
            self._failed(addrinfos_or_exc)
            addrinfos_or_exc = []  # so the next host is tried
        super()._on_getaddrinfo_async_done(addrinfos_or_exc)

    def _try_next_resolved_address(self) -> None:
        try:
            super()._try_next_resolved_address()
        except OSError as error:  # the system has no such sockets, such as those of IPv6
            self._connector = None
            self._on_connector_done(error)

    def _on_connector_done(self, conn_or_exc: Any) -> None:
        if isinstance(conn_or_exc, BaseException):
            self._failed(conn_or_exc)
        super()._on_connector_done(conn_or_exc)

    def _report_completion_and_cleanup(self, result: Any) -> None:
        if isinstance(result, AMQPConnectionWorkflowFailed):
            result = AMQPConnectionWorkflowFailed([*result.exceptions, NoAddress(self._failures)])
        super()._report_completion_and_cleanup(result)
