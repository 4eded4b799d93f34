"""python -m duo"""

import sys

from duo.cli.main import main

sys.exit(main())
