import sys

from delayq_generated.api.messages import cancel_messages, get_message, schedule_message
from delayq_generated.client import AuthenticatedClient
from delayq_generated.models import CancelIn, MessageIn, MessageOut, ProblemOut, ResultsOut, ScheduledOut, StateOut

client = AuthenticatedClient(sys.argv[1], token="any")
message = MessageIn(topic="orders.unpaid", delay_time="30m", id="use", keys=["order-42"], body={"order": 42})
scheduled = schedule_message.sync(client=client, body=message)
assert isinstance(scheduled, ScheduledOut), scheduled
print(scheduled.state)
found = get_message.sync("use", client=client)
assert isinstance(found, StateOut), found
assert isinstance(found.message, MessageOut), found
assert isinstance(found.message.keys, list), found
assert isinstance(found.due_ms, int), found
print(found.message.keys[0], str(found.due_ms > 2**32).lower())
cancelled = cancel_messages.sync(client=client, body=CancelIn(keys=["order-42"]))
assert isinstance(cancelled, ResultsOut), cancelled
assert isinstance(cancelled.results[0].messages, list), cancelled
print(cancelled.results[0].messages[0].result)
problem = schedule_message.sync(client=client, body=message)
assert isinstance(problem, ProblemOut), problem
print(problem.type_)
