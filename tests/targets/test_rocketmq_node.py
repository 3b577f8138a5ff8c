"""A real worker node that forwards to a real RocketMQ."""

from __future__ import annotations
