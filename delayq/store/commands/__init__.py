"""Every operation as a value: its script, keys and arguments, and the reader of its reply.

Nothing here connects to Redis; `Store` and `AsyncStore` run commands. `now` is '' for the clock of Redis, or a time
(Unix ms) from a test.
"""

from delayq.store.commands.audit import *
from delayq.store.commands.census import *
from delayq.store.commands.clients import *
from delayq.store.commands.command import *
from delayq.store.commands.consumers import *
from delayq.store.commands.groups import *
from delayq.store.commands.jobs import *
from delayq.store.commands.limits import *
from delayq.store.commands.meta import *
from delayq.store.commands.owners import *
from delayq.store.commands.policies import *
from delayq.store.commands.reading import *
from delayq.store.commands.searching import *
from delayq.store.commands.trimming import *
