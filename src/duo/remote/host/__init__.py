"""The side that serves its model to clients."""
