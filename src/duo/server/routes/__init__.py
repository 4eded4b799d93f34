"""The routes, by what they are for. Each module adds its own to a router."""
