"""What crosses the network: it comes out as it went in, it is small, nonsense is refused, its code is current."""

import math
import random
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import hostile
import pytest
from conftest import run_python
from needs import lacks
from sizes import size

from duo import DuoError, _core
from duo.generation.job import sampling, speculation
from duo.options.validate import generate_options
from duo.remote.client.draft import _Nodes
from duo.remote.host.text import batches
from duo.remote.wire import wire_pb2 as wire
from duo.remote.wire.codec import (
    N_BATCH_MAX,
    ChunkTuple,
    NodeTuple,
    ProtocolError,
    VerdictTuple,
    get_chunks,
    get_figures,
    get_nodes,
    get_verdicts,
    put_chunks,
    put_figures,
    put_nodes,
    put_verdicts,
)
from duo.remote.wire.codec_begin import get_begin, n_message_most, put_begin
from duo.remote.wire.methods import parse

N_VOCAB = 128_256
NODES: list[NodeTuple] = [
    ("node", True, 70_000, 69_990, 128_000, -0.5, 3, 4, 0.0),
    ("node", False, 2**63 - 1, 2**63 + 5, 0, 0.0, 0, 1, 812.5),
    ("pause", True, 0, 69_990, -1, 0.0, 0, 0, 0.0),
    ("failed", True, 2**63 + 5, 0, -1, 0.0, 0, 0, 0.0),
    ("share", True, 0, 69_990, 17, -2.25, 0, 0, 0.0),
]
VERDICTS: list[VerdictTuple] = [
    ("orders", 0, -1, 3, 2, 0, 1000, 0, 0),
    ("verdict", 70_000, 128_000, 8, 4, 5, 120, 90, -350),
    ("end", 0, -1, 0, 1, 0, 1000, 0, 0),
]
CHUNKS: list[ChunkTuple] = [
    ("token", True, False, "", 5, -0.25, 3, 0),
    ("logprob", False, False, "", 7, -math.inf, 0, 0),
    ("end", False, False, "stop", -1, 0.0, 0, 4),
]


def test_messages_survive_the_wire_unchanged() -> None:
    to_draft, from_draft, from_verify = wire.ToDraft(), wire.FromDraft(), wire.FromVerify()
    put_nodes(from_draft, NODES)
    put_verdicts(to_draft, VERDICTS)
    put_verdicts(from_verify, VERDICTS)
    put_chunks(from_verify, CHUNKS)
    put_figures(from_verify, {"n_passes": 5, "n_tested_at": [3, 2, 1], "busy_us": 2**40, "n_passes_in": []})
    assert get_nodes(parse(wire.FromDraft, from_draft.SerializeToString()), N_VOCAB) == NODES
    assert get_verdicts(parse(wire.ToDraft, to_draft.SerializeToString()), N_VOCAB) == VERDICTS
    there = parse(wire.FromVerify, from_verify.SerializeToString())
    assert get_verdicts(there, N_VOCAB) == VERDICTS
    assert get_chunks(there, N_VOCAB) == CHUNKS
    assert get_figures(there) == {"n_passes": 5, "n_tested_at": [3, 2, 1], "busy_us": 2**40, "n_passes_in": []}


def test_a_guess_takes_some_twenty_bytes() -> None:
    message = wire.FromDraft()
    put_nodes(message, [("node", True, 60_000 + i, 59_990 + i, 100_000 + i, -0.7, 1, 4, 0.0) for i in range(100)])
    assert message.ByteSize() / 100 <= 24


def test_guesses_outside_the_targets_vocabulary_are_left_out() -> None:
    message = wire.FromDraft()
    put_nodes(message, [("node", True, i, 1, 990 + 5 * i, -0.7, 0, 1, 0.0) for i in range(1, 5)])
    assert [n[4] for n in get_nodes(message, 1000)] == [995]
    put_nodes(message, [("node", True, 9, 1, 1128, -0.7, 0, 1, 0.0)])
    with pytest.raises(ProtocolError, match="the token of a node is 1128"):
        get_nodes(message, 1000)


@pytest.mark.parametrize("n_logprobs", [-1, 0, 1, 5, 100])
@pytest.mark.parametrize("n_tokens", [0, 1, 10, 11, 1023, 1024, 3000])
def test_no_message_ends_between_a_token_and_its_log_probabilities(n_tokens: int, n_logprobs: int) -> None:
    chunks: list[ChunkTuple] = []
    for i in range(n_tokens):
        chunks.append(("token", True, False, "", i, -0.25, 0, 0))
        chunks += [("logprob", False, False, "", j, -1.0, 0, 0) for j in range(n_logprobs)]
    for whole in (chunks, [*chunks, CHUNKS[-1]]):
        parts = batches(whole)
        assert [c for part in parts for c in part] == whole
        assert all(len(part) <= N_BATCH_MAX for part in parts)
        assert all(part[0][0] != "logprob" for part in parts if part)
        assert len(parts) <= 1 + len(whole) // (N_BATCH_MAX - 100)


def begin_of(**options: Any) -> _core.Begin:
    b = _core.Begin()
    o = generate_options(options)
    b.id, b.prompt, b.n_generated = 2**63 + 9, [1, 5, 700, 1535], 1
    b.n_predict, b.n_logprobs, b.stop = 77, 3, ["é", "stop"]
    b.sampling, b.plan = sampling(o, 2**64 - 1), speculation(o)
    return b


def test_a_request_survives_the_wire_unchanged() -> None:
    for options in (
        {},
        {"temperature": 0, "top_k": 0, "top_p": 1.0, "min_p": 0, "repeat_last_n": -1, "ignore_eos": True},
        {"logit_bias": {5: -math.inf, 9: 1e9}, "presence_penalty": -1e4, "repeat_penalty": 1e-3, "temperature": 1e6},
        {"typical_p": 0.25, "top_n_sigma": 1.5, "xtc_probability": 1.0, "xtc_threshold": 0.5, "dynatemp_range": 1e6},
        {"dynatemp_exponent": 1e3, "dry_multiplier": 1e4, "dry_base": 1.0, "dry_allowed_length": 0},
        {"dry_base": 1e4, "dry_penalty_last_n": -1, "dry_sequence_breakers": ["é" * 20, "\n"]},
        {"dry_sequence_breakers": []},
        *({"accept": rule} for rule in ("rejection", "typical", "top-n")),
        {"posterior_threshold": 0.5, "posterior_alpha": 0.25, "accept_top": 1000},
        {"mode": "sync", "n_draft": 4, "draft_tree": [[0], [1], [0, 0]], "spec_type": ["draft-simple", "ngram-mod"]},
        {"mode": "plain", "draft_tree": "dynamic", "draft_p_min": 1.0, "n_draft_branches": 2},
        *({"draft_window": window} for window in ("auto", "all", 0, 64, 2**20)),
    ):
        here = begin_of(**options)
        data = put_begin(here, instance=bytes(16), session=bytes(16)).SerializeToString()
        there = get_begin(parse(wire.Begin, data), n_vocab=1536, n_ctx=512)
        for part, names in (
            (lambda b: b, "id prompt n_generated n_predict n_logprobs stop"),
            (lambda b: b.sampling, "temp top_k top_p min_p repeat_penalty presence_penalty frequency_penalty"),
            (lambda b: b.sampling, "repeat_last_n seed ignore_eos logit_bias grammar n_prompt"),
            (lambda b: b.sampling, "typical_p top_n_sigma xtc_probability xtc_threshold dynatemp_range"),
            (lambda b: b.sampling, "dynatemp_exponent dry_multiplier dry_base dry_allowed_length dry_penalty_last_n"),
            (lambda b: b.sampling, "dry_sequence_breakers accept posterior_threshold posterior_alpha accept_top"),
            (lambda b: b.plan, "mode n_draft n_draft_min p_min n_branch n_window has_model always use tree"),
            (lambda b: b.plan, "ngram ngram_size_n ngram_size_m ngram_min_hits"),
        ):
            for name in names.split():
                assert getattr(part(there), name) == getattr(part(here), name), name


def test_a_full_context_fits_into_a_message() -> None:
    b = begin_of(logit_bias=dict.fromkeys(range(4096), -1.5))
    b.prompt = [128_000] * 4096
    assert put_begin(b, instance=bytes(16), session=bytes(16)).ByteSize() < n_message_most(4096)


def test_invalid_messages_are_reported_in_one_sentence() -> None:
    rng = random.Random(3)
    good = put_begin(begin_of(), instance=bytes(16), session=bytes(16))
    n_refused = 0
    for _ in range(n := size(1000, 3000)):
        try:
            get_begin(parse(wire.Begin, hostile.begin(rng, good).SerializeToString()), n_vocab=1536, n_ctx=512)
            data = hostile.message(rng, wire.FromVerify, [("verdicts", hostile.verdict), ("chunks", hostile.chunk)])
            message = parse(wire.FromVerify, data)
            get_verdicts(message, 1536), get_chunks(message, 1536), get_figures(message)
            nodes = parse(wire.FromDraft, hostile.message(rng, wire.FromDraft, [("nodes", hostile.node)]))
            get_nodes(nodes, 1536)
        except DuoError as e:
            n_refused += 1
            assert "\n" not in str(e)
    assert n_refused > n / 2


def test_a_draft_that_still_reads_its_prompt_is_not_called_silent() -> None:
    link = MagicMock()
    link.take.return_value = [("verdict", 0, 5, 1, 1, 1, 1000, 0, 0)]
    nodes = _Nodes(link, 1536, threading.Lock())
    for named, waited in ((True, False), (False, True)):  # the root's name, then a guess
        nodes.give(wire.FromDraft(nodes=[wire.Node(id=1, parent=2**63 + 1, token=5, named=named, n_rows=1)]))
        nodes.take()
        assert (nodes.silent_s > 0) == waited
    nodes.give(wire.FromDraft(nodes=[wire.Node(id=2, parent=1, token=5, n_rows=1)]))
    assert nodes.silent_s == 0


def test_the_generated_code_matches_the_protocol() -> None:
    if not (Path(sysconfig.get_path("scripts")) / "protoc").exists():
        lacks("protoc")
    tool = Path(__file__).parent.parent / "tools" / "protocol.py"
    r = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False)
    assert (r.returncode, r.stderr) == (0, "")


def test_without_grpc_duo_works_and_says_what_is_missing() -> None:
    code = (
        "import sys\n"
        "sys.modules['grpc'] = None\n"
        "import duo\n"
        "from duo.cli.main import main\n"
        "assert duo.generate('Once', max_tokens=2).tokens\n"
        "sys.exit(main(['--draft-host', 'localhost:1', '-p', 'x']))\n"
    )
    r = run_python(code)
    assert r.returncode == 1
    assert r.stderr.count("\n") == 1
    assert "pip install 'duo-llama[remote]'" in r.stderr
