"""A draft host: whatever happens to it, the text is the target's."""

from __future__ import annotations

from typing import Any

from benchmarks.torture.catalogue import EXACT, EXACT_ARGS
from benchmarks.torture.kinds.hosts import Hosts

from duo import Duo
from duo.gguf_tools.switched_duo import SwitchedDuo


class DraftHosts(Hosts):
    name = "draft host killed, frozen, cut off"
    role = "draft"
    share = 9

    def host_args(self) -> list[Any]:
        draft = self.rng.choice([d for d in self.models.drafts if d is not None and "eagle3" not in d.name])
        return ["-md", draft, "-td", "1", "-np", str(self.seats)]

    def open(self) -> Duo:
        late = (self.rng.choice((500, 2000, 5000)), 3)
        return SwitchedDuo(
            self.models.target, draft_host=self.way.address, n_ctx=1024, n_threads=1, always=True, delay=late, **EXACT
        )

    def client_args(self) -> list[Any]:
        return ["-m", self.models.target, "--draft-host", self.way.address, "-c", "512", *EXACT_ARGS]
