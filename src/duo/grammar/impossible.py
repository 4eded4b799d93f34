"""Schemas that no value follows."""


class ImpossibleError(ValueError):
    """No value follows the schema. Where it is one of several, the others count."""
