"""python -m duo"""

from duo.cli.main import leave

leave()
