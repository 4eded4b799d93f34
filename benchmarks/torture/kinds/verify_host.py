"""A verify host: the text goes on when it is back, or ends with a sentence."""

from __future__ import annotations

import random
import signal
from typing import Any

from benchmarks.torture.catalogue import EXACT_ARGS, Right
from benchmarks.torture.certificate import make_certificate
from benchmarks.torture.judge import Seen, WrongError
from benchmarks.torture.kinds.hosts import PATIENCE_S, Hosts
from benchmarks.torture.room import Room

from duo import Duo, DuoError
from duo.gguf_tools.switched_duo import SwitchedDuo


class VerifyHosts(Hosts):
    name = "verify host killed, frozen, cut off"
    role = "verify"
    share = 6

    def __init__(self, room: Room, rng: random.Random) -> None:
        # Bytes that are changed on the way are seen by TLS only: without it the text would be another one.
        self.tls = make_certificate(room.files) if rng.random() < 0.4 else None
        super().__init__(room, rng)
        if self.tls is None:
            self.faults = [f for f in self.faults if f != self.flip]

    def ca(self) -> dict[str, Any]:
        return {} if self.tls is None else {"host_ca": str(self.tls[0])}

    def host_args(self) -> list[Any]:
        tls = [] if self.tls is None else ["--tls-cert", self.tls[0], "--tls-key", self.tls[1]]
        return [*tls, "-m", self.models.target, "-t", "1", "-c", "1024", "-np", str(self.seats + 1), *EXACT_ARGS]

    def open(self) -> Duo:
        draft = self.rng.choice([d for d in self.models.drafts if d is not None and "eagle3" not in d.name])
        return SwitchedDuo(
            None,
            draft,
            verify_host=self.way.address,
            n_threads_draft=1,
            host_patience=PATIENCE_S,
            always=True,
            **self.ca(),
        )

    def client_args(self) -> list[Any]:
        draft = next(d for d in self.models.drafts if d is not None and "eagle3" not in d.name)
        return [
            "-md",
            draft,
            "--verify-host",
            self.way.address,
            "--host-patience",
            "3600",
            *([] if self.tls is None else ["--host-ca", self.tls[0]]),
        ]

    def fault(self, rng: random.Random, seen: Seen) -> None:
        if rng.random() < 0.08:
            seen.count("stays away")
            self.stays_away(rng, seen)
        else:
            super().fault(rng, seen)

    def stays_away(self, rng: random.Random, seen: Seen) -> None:
        """A host that does not come back in time leaves the text so far, and a sentence."""
        right: Right = self.room.right(rng, self.models.name)
        self.way.heal()
        draft = next(d for d in self.models.drafts if d is not None and "eagle3" not in d.name)
        with Duo(None, draft, verify_host=self.way.address, host_patience=0.2, n_threads_draft=1, **self.ca()) as d:
            s = d.stream(right.prompt, **right.given())
            got = []
            try:
                for c in s:
                    if c.token is not None:
                        got.append(c.token)
                    if len(got) == 5:
                        self.host.end(signal.SIGKILL, (-9,))
                seen.part(got, right.tokens)
            except DuoError as e:
                seen.sentence(e)
                if e.result is None:
                    raise WrongError("an error in the middle of a text has no result") from e
                seen.ended(got, e.result.tokens, right.tokens)
            self.host.start()
