"""Prints what one extra of the installed duo-llama needs, a line each: pyproject.toml stays the only list.

python tools/extra_requirements.py test
"""

import sys
from importlib.metadata import requires

for requirement in requires("duo-llama") or []:
    name, _, marker = requirement.partition(";")
    if f'extra == "{sys.argv[1]}"' in marker:
        print(name.strip())
