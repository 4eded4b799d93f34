"""The side that lends its model."""
