"""The values that a driver passes to its tasks."""

from __future__ import annotations

from typing import NamedTuple

from delayq import http
from delayq.client.client import Client
from delayq.config import Settings
from delayq.domain.routes import Routes


class Handed(NamedTuple):
    """The driver's settings, which all tasks use, and its routes: a task's machine may not have their file.

    Routes carry only their topics and the limits of their targets: their secrets stay with the driver.
    """

    settings: Settings
    routes: Routes
    #: The URL of the HTTP API that takes the place of Redis; only for one task in the driver's own process.
    api: str = ""

    @classmethod
    def of(cls, settings: Settings, api: str = "") -> Handed:
        """Raises ConfigError for invalid routes."""
        return cls(settings.replace(routes=""), settings.route_table().bare(), api)

    def api_client(self) -> http.Client:
        """A client of the HTTP API."""
        return http.Client(self.api, settings=self.settings)

    def client(self, *, check_routes: bool = True) -> Client:
        """Return a client of their Redis."""
        return Client(settings=self.settings, routes=self.routes, check_routes=check_routes)

    def client_of_task(self, *, check_routes: bool = True) -> Client:
        """Return a client for one of many tasks. It does not warn that no worker is live: the driver does."""
        made = self.client(check_routes=check_routes)
        made.known_routes.be_quiet()
        return made
