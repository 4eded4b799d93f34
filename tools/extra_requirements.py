"""Prints the requirements of one extra of the installed duo, one per line. pyproject.toml stays the only list.

python tools/extra_requirements.py test
"""

import sys
from importlib.metadata import requires

for requirement in requires("duo") or []:
    name, _, marker = requirement.partition(";")
    if f'extra == "{sys.argv[1]}"' in marker:
        print(name.strip())
