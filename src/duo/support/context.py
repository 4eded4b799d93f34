"""The length of a context where the user gives none."""

N_CTX_DEFAULT = 4096  # tokens, at most; a model that was trained for fewer gets those
