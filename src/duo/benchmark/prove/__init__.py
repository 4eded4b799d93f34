"""`duo prove`: whether texts stay the same with drafts, in a batch, as streams, after a restored state.

`plan` and `cases` say what is written, `pair` and `endpoint` write it, `compare` finds the first difference, `run` and
`tally` count, `report` prints.
"""
