"""python -m delayq.cli"""

import sys

from delayq.cli.app import main

sys.exit(main())
