"""`duo prove --against`: a server with OpenAI's routes."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from duo.benchmark.bench.endpoint.address import parse_address
from duo.benchmark.bench.endpoint.client import EndpointClient, read_key
from duo.benchmark.bench.head import head_of
from duo.benchmark.prove.cases import How, of_server, reference_items
from duo.benchmark.prove.endpoint import ServerTextWriter, add_candidates
from duo.benchmark.prove.plan import ProofPlan
from duo.benchmark.prove.run import Proof, References
from duo.cli.bench_head import refuse
from duo.cli.models import DRAFT, NAMES, names_target
from duo.cli.options import given_options
from duo.cli.prove_pair import texts_here
from duo.errors import BadValueError
from duo.options.tables import ENDPOINT_OPTIONS, ENGINE_OPTIONS
from duo.options.validate import endpoint_options


def measure(params: dict[str, Any], plan: ProofPlan, proof: Proof, head: dict[str, Any], command: str) -> None:
    """Raises DuoError and KeyboardInterrupt; `proof` then has what was counted."""
    o = endpoint_options(given_options(params, ENDPOINT_OPTIONS))
    refuse(params, (*DRAFT, "pair", "draft_host", "verify_host"), "--against, because the server has its own draft")
    with_model = names_target(params)
    if not with_model:
        refuse(params, (*NAMES, *ENGINE_OPTIONS), "--against without a model to compare with (-m)")
    address = parse_address(params["against"], "--against")
    if with_model and address.chat:
        raise BadValueError(
            "-m compares texts of /v1/completions, where prompts have no template; leave out -m, or change --against"
        )
    client = EndpointClient(address, read_key(o["api_key_file"]), o["timeout"], o["url_model"])
    head["reference"] = f"the first answers of {address.name}, one at a time, not streamed"
    with closing(client):
        client.meet()
        references: References = texts_here(params, plan, proof.notes, head, command) if with_model else {}
        if not with_model:
            head.update(head_of([], command, {}))
        head["servers"] = {address.name: {"url": address.url, "model": client.model, "owned_by": client.owner or None}}
        _measure(ServerTextWriter(client, plan), address.name, plan, proof, references)


def _measure(writer: ServerTextWriter, name: str, plan: ProofPlan, proof: Proof, references: References) -> None:
    cases, items = of_server(plan), reference_items(plan)
    proof.n_expected = len(items) + sum(len(c.items) for c in cases)
    proof.refer(writer, items, name, How())
    if references:
        proof.compare(name, "beside the model here", references)
    if why := add_candidates(writer, plan.items("greedy"), proof.references):
        proof.notes[f"how near other tokens are is unknown, because {name} tells no log-probabilities: {why}"] = None
    for case in cases:
        if not (why and case.how.logprobs):
            proof.measure(name, writer, case)
