"""python -m delayq.cli"""

import sys

from delayq.cli import main

sys.exit(main())
