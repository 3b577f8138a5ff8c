"""The operations on policies: list, get, put, delete."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from api.asgi import Answer, Request, encode
from api.routes.by import by_hand, tell
from api.service import Operations, Service
from api.wire.problems import Problem
from api.wire.requests import PolicyIn, decode, policy_of
from delayq import InvalidMessage, Policy
from delayq.answers.topics import PoliciesOut, PolicyChangedOut, PolicyOut, policies_out, policy_changed_out, policy_out
from delayq.client.changing import policies as plans
from delayq.domain.policies import check_policy_name
from delayq.store.commands import ANY

OPERATIONS = Operations("policies")

_policy = msgspec.json.Decoder(PolicyIn)
_VERSION: Final = re.compile(r'("?)(\d{1,10})\1', re.ASCII)
_IF_MATCH: Final = {
    "If-Match": {
        "schema": {"type": "string", "pattern": "^[0-9]{1,10}$"},
        "description": "The version that the caller has read.",
    }
}


@OPERATIONS.add("GET", "/v1/policies", "listPolicies", gives={200: PoliciesOut}, problems=(400, 503))
async def policies(service: Service, request: Request) -> Answer:
    """List policies and pauses

    If several policies match a topic, only the first applies (by `order`, then by `name`); policies are never merged.
    The oldest pause comes first. `limits` are the rates of earlier resumes: each ends when nothing of it is held, or by
    a resume without a rate.
    """
    request.query()
    found = await service.client.policies()
    return Answer(200, encode(policies_out(found, lambda match: request.caller.has("read", match))))


@OPERATIONS.add("GET", "/v1/policies/{name}", "getPolicy", gives={200: PolicyOut}, problems=(400, 404, 503))
async def policy(service: Service, request: Request) -> Answer:
    """Get a policy"""
    request.query()
    name = check_policy_name(request.path_params["name"])
    found = (await service.client.policies()).policies.get(name)
    if found is None or not request.caller.has("read", found.match):
        raise Problem("not-found", "No policy has this name.", field="name")
    return Answer(200, encode(policy_out(found)))


@OPERATIONS.add(
    "PUT",
    "/v1/policies/{name}",
    "putPolicy",
    takes=PolicyIn,
    example={"match": "sms.*", "order": 10, "rate": 50, "maxAttempts": 5, "backoff": ["10s", "1m", "10m"]},
    gives={200: PolicyChangedOut},
    problems=(400, 408, 409, 412, 413, 415, 503),
    headers=_IF_MATCH,
)
async def put_policy(service: Service, request: Request) -> Answer:
    """Create or replace a policy

    With the header `If-Match: <version>`, only if the policies still have that version; otherwise 412. A message's own
    field overrides the policy; the policy overrides the route and the settings. 409 while a live worker is too old for
    its `rate`, `maxInFlight`, `maxAttempts` or `backoff`.
    """
    request.query()
    given = decode(_policy, await request.json_text(service.settings.request_limit))
    policy = policy_of(check_policy_name(request.path_params["name"]), given)
    request.caller.need_on_all("admin", policy.match)
    seen, before = _seen(request), await _before(service, request, policy.name)
    by, url = by_hand(request), service.settings.redis_url
    changed = await service.client.run(
        lambda context: plans.put_policy(context, policy, url, if_version=seen, before=before, by=by)
    )
    tell(service, by, "putPolicy", [policy.name] * changed.changed)
    return Answer(200, encode(policy_changed_out(changed)))


@OPERATIONS.add(
    "DELETE",
    "/v1/policies/{name}",
    "deletePolicy",
    gives={200: PolicyChangedOut},
    problems=(400, 412, 503),
    headers=_IF_MATCH,
)
async def delete_policy(service: Service, request: Request) -> Answer:
    """Delete a policy

    With the header `If-Match: <version>`, only if the policies still have that version; otherwise 412.
    """
    request.query()
    name = check_policy_name(request.path_params["name"])
    seen, before = _seen(request), await _before(service, request, name)
    by = by_hand(request)
    changed = await service.client.run(
        lambda context: plans.delete_policy(context, name, if_version=seen, before=before, by=by)
    )
    tell(service, by, "deletePolicy", [name] * changed.changed)
    return Answer(200, encode(policy_changed_out(changed)))


def _seen(request: Request) -> int | None:
    """Return the version that the caller has read."""
    text = request.headers.get("if-match")
    if text is None:
        return None
    version = _VERSION.fullmatch(text.strip())
    if version is None:
        raise InvalidMessage("If-Match", "must be the version of the policies, as in the answers")
    return int(version.group(2))


async def _before(service: Service, request: Request, name: str) -> str:
    """Require that the caller may change the policy that is replaced."""
    if request.caller.everything("admin"):
        return ANY
    found = (await service.client.policies()).policies.get(name, Policy())
    if found.match and not request.caller.has("read", found.match):
        # The pattern may name topics of another key, so it stands in no answer.
        raise Problem("forbidden", "This name belongs to a policy of other topics; choose another name.", field="name")
    if found.match:
        request.caller.need_on_all("admin", found.match)
    return found.stored
