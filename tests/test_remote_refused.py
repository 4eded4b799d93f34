"""Who is turned away, and told why: other models, versions, tokens, certificates; hosts that would be open to all."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import HANG_S
from gguf_files import header_of, rewrite, tokens_of
from hosts import PROMPT, HostProcess, host, make_certificate, until_it_helps, write_token
from sizes import mostly_daily
from waits import first_line

from duo import Duo, DuoError
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

pytest.importorskip("grpc")

from duo.remote.address import HostAddress
from duo.remote.security import ServerSecurity, read_token, same_token
from duo.remote.wire.identity import Identity, mismatch

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("pki")
    ours, theirs = (make_certificate(folder, name) for name in ("ours", "theirs"))
    return {
        "ours": ours,
        "theirs": theirs,
        "host": make_certificate(folder, "host", ours),
        "client": make_certificate(folder, "client", ours),
        "stranger": make_certificate(folder, "stranger", theirs),
    }


@pytest.fixture(scope="module")
def guarded(pki: dict[str, tuple[Path, Path]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A draft host that wants everything: TLS, a client's certificate, a token."""
    token = write_token(tmp_path_factory.mktemp("token") / "token")
    cert, key = pki["host"]
    args = ("--tls-cert", cert, "--tls-key", key, "--tls-ca", pki["ours"][0], "--token-file", token)
    with host("draft", *args) as h:
        h.token = token  # type: ignore[attr-defined]
        yield h


def keys(pki: dict[str, tuple[Path, Path]], who: str, h: Any) -> dict[str, Any]:
    cert, key = pki[who]
    return {
        "host_ca": str(pki["ours"][0]), "host_cert": str(cert), "host_key": str(key), "token_file": str(h.token),
        "draft_host": h.address, "n_ctx": 256,
    }  # fmt: skip


def test_a_client_with_token_and_certificate_is_accepted(pki: Any, guarded: HostProcess) -> None:
    with SwitchedDuo(**keys(pki, "client", guarded), always=True) as d:
        r = d.generate(PROMPT, max_tokens=30, temperature=0)
        assert r.warning == ""
        until_it_helps(d)


def test_a_wrong_or_missing_token_is_refused(pki: Any, guarded: HostProcess, tmp_path: Path) -> None:
    options = keys(pki, "client", guarded)
    with pytest.raises(DuoError, match=r"refused \(the token is not the host's"):
        Duo(**options | {"token_file": str(write_token(tmp_path / "t", "wrong-horse-battery-staple"))})
    with pytest.raises(DuoError, match=r"refused \(the host requires a token"):
        Duo(**options | {"token_file": None})


def test_certificates_of_another_authority_are_refused(pki: Any, guarded: HostProcess) -> None:
    options = keys(pki, "client", guarded)
    with pytest.raises(DuoError, match="its certificate is not trusted"):
        Duo(**options | {"host_ca": str(pki["theirs"][0])})
    with pytest.raises(DuoError, match="refused the certificate of this machine"):
        Duo(**keys(pki, "stranger", guarded))
    with pytest.raises(DuoError, match="refused the certificate of this machine, or requires one"):
        Duo(**options | {"host_cert": None, "host_key": None})


def test_tls_at_one_end_only(pki: Any, guarded: HostProcess, draft_host: HostProcess) -> None:
    with pytest.raises(DuoError, match="it uses TLS; give the certificate"):
        Duo(draft_host=guarded.address)
    with pytest.raises(DuoError, match="it does not use TLS"):
        Duo(draft_host=draft_host.address, host_ca=str(pki["ours"][0]))


def test_a_certificate_for_another_name(pki: Any, guarded: HostProcess) -> None:
    port = guarded.address.rpartition(":")[2]
    options = keys(pki, "client", guarded) | {"draft_host": f"127.0.0.2:{port}", "require_draft": True}
    with pytest.raises(DuoError, match=r"not trusted|connection refused"):
        Duo(**options)


def test_the_wrong_kind_of_host(draft_host: HostProcess, verify_host: HostProcess) -> None:
    with pytest.raises(DuoError, match="is a draft host, but a verify host is needed"):
        Duo(verify_host=draft_host.address)
    with pytest.raises(DuoError, match="is a verify host, but a draft host is needed"):
        Duo(draft_host=verify_host.address)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo draft with one other token."""
    tokens = list(tokens_of(demo_pair()[1]))
    tokens[700] = "somethingelse"
    kind = header_of(demo_pair()[1])["tokenizer.ggml.tokens"][0]
    to = tmp_path_factory.mktemp("model") / "changed.gguf"
    return rewrite(demo_pair()[1], to, put={"tokenizer.ggml.tokens": (kind, tokens)})


@pytest.mark.parametrize("role", mostly_daily(["draft", "verify"], ["draft"]))
def test_another_vocabulary_is_named_by_its_first_different_token(role: str, changed: Path) -> None:
    right = tokens_of(demo_pair()[1])[700]
    why = rf"the draft does not fit the target: token 700 is 'somethingelse' in the draft and '.*{right[1:]}' in the t"
    if role == "draft":
        with host("draft", "-md", changed) as h, pytest.raises(DuoError, match=why):
            Duo(draft_host=h.address)
    else:
        with host("verify") as h, pytest.raises(DuoError, match=why):
            Duo(None, changed, verify_host=h.address)


@pytest.mark.parametrize("role", mostly_daily(["draft", "verify"], ["draft"]))
def test_another_version_is_refused_by_both_ends(role: str) -> None:
    code = (
        "import sys, duo.remote.wire.hello as hello\n"
        "hello.PROTOCOL = 77\n"
        "hello.version = lambda: '9.9'\n"
        "from duo.cli.main import main\n"
        "sys.exit(main())\n"
    )
    import subprocess

    command = [sys.executable, "-c", code, f"{role}-host", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as p:
        try:
            address = first_line(p).split(" on ")[1].split(" ")[0]
            with pytest.raises(DuoError, match=r"uses version 77 of the protocol \(duo 9\.9\).*install the same duo"):
                Duo(**{f"{role}_host": address})
        finally:
            p.terminate()
            p.wait(HANG_S)
    from duo.remote.wire import hello
    from duo.remote.wire import wire_pb2 as wire

    asked = wire.HelloRequest(protocol=77, version="9.9", role=role)
    assert "install the same duo" in hello.refusal(asked, role, identity([b"a"] * 10))


def test_a_token_without_tls_is_reported(tmp_path: Path, run: Run) -> None:
    token = write_token(tmp_path / "token")
    said = "the token goes to 192.0.2.1:9 without TLS, so others can read it; give --host-ca"
    with host("draft", "--token-file", token) as h:
        for address, count in (("192.0.2.1:9", 1), (h.address, 0)):
            code, _, err = run("--draft-host", address, "--token-file", token, "-p", PROMPT, "-n", "3")
            assert code == 0
            assert err.splitlines().count(f"duo: {said}") == count


# ---- what is decided without a network


def test_a_host_is_not_open_to_strangers_by_accident(
    pki: Any, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duo.remote.host.host.serve", None)  # or a host that is open would be, until somebody ends it
    token = str(write_token(tmp_path / "token"))
    cert, key = pki["host"]
    tls = ("--tls-cert", cert, "--tls-key", key)
    for args in ((), ("--token-file", token), tls):
        code, out, err = run("draft-host", "--listen", "0.0.0.0:0", *args)
        assert (code, out) == (1, "")
        assert "give --tls-cert, --tls-key and --token-file" in err


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "some.host:0"])
def test_addresses_of_others_need_all_secrets(listen: str, pki: Any, tmp_path: Path) -> None:
    token = read_token(str(write_token(tmp_path / "token")))
    cert, key = map(str, pki["host"])
    address = HostAddress.of(listen, option="--listen", any_port=True)
    for few in (ServerSecurity(), ServerSecurity(token=token), ServerSecurity(cert=cert, key=key)):
        with pytest.raises(DuoError, match="give --tls-cert, --tls-key and --token-file"):
            few.check(address, insecure=False)
    ServerSecurity(cert=cert, key=key, token=token).check(address, insecure=False)
    ServerSecurity().check(address, insecure=True)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0", "[::1]:0", "127.5.5.5:0", "unix:/tmp/x"])
def test_addresses_of_this_machine_need_no_secrets(listen: str) -> None:
    ServerSecurity().check(HostAddress.of(listen, option="--listen", any_port=True), insecure=False)


@pytest.mark.parametrize("content", ["", "short", "two words that are long", "x" * 5000, "ümlaut-ümlaut-ümlaut"])
def test_invalid_token_files(content: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(content)
    with pytest.raises(DuoError, match="must contain one word"):
        read_token(tmp_path / "t")


def test_a_secret_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    for name, why in (("none", "No such file or directory"), ("a\0b", "null byte")):
        path = f"{tmp_path}/{name}"
        with pytest.raises(DuoError, match=rf"\(--token-file\) cannot be read \(.*{why}\)"):
            Duo(draft_host="127.0.0.1:9", token_file=path)
        with pytest.raises(DuoError, match=rf"\(--host-ca\) cannot be read \(.*{why}\)"):
            Duo(draft_host="127.0.0.1:9", host_ca=path)


def test_tokens_are_compared_whole() -> None:
    assert same_token(b"0123456789abcdef", "0123456789abcdef")
    for other in ("", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeg", "ü", b"\xff"):
        assert not same_token(b"0123456789abcdef", other)


@pytest.mark.parametrize("what", mostly_daily(["missing", "no PEM", "other key"], ["other key"]))
def test_unusable_certificate_files(what: str, pki: Any, tmp_path: Path, run: Run) -> None:
    cert, key = pki["host"]
    (tmp_path / "x").write_text("hello")
    files = {
        "missing": (tmp_path / "none", key),
        "no PEM": (tmp_path / "x", key),
        "other key": (cert, pki["client"][1]),
    }[what]
    code, out, err = run("draft-host", "--listen", "127.0.0.1:0", "--tls-cert", files[0], "--tls-key", files[1])
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "Traceback" not in err


class Words:
    """A vocabulary that is given as a list."""

    def __init__(self, words: list[bytes], **special: Any) -> None:
        self.words = words
        self.n_tokens = len(words)
        self.type, self.bos, self.eos = special.get("type", 1), special.get("bos", 1), special.get("eos", 2)
        self.add_bos, self.add_eos = special.get("add_bos", True), special.get("add_eos", False)

    def text(self, token: int) -> bytes:
        return self.words[token]

    def hash(self, first: int, n: int) -> int:
        return hash(tuple(self.words[first : first + n])) & (2**64 - 1)


def identity(words: list[bytes], **special: Any) -> Identity:
    return Identity.of("m", Words(words, **special))


def why(target: Words, draft: Words) -> str:
    def texts(v: Words) -> Any:
        return lambda first, n: v.words[first : first + min(n, 100)]  # a host need not send all at once

    return mismatch(Identity.of("t", target), Identity.of("d", draft), texts(target), texts(draft))


def test_the_rules_are_those_of_a_pair_on_one_machine() -> None:
    words = [b"w%d" % i for i in range(1000)]
    assert why(Words(words), Words(words)) == ""
    assert why(Words(words), Words([b"x"] * 5 + words[5:])) == ""  # the first five may differ
    assert "token 5 is 'x' in the draft and 'w5' in the target" in why(Words(words), Words([b"x"] * 6 + words[6:]))
    assert why(Words(words), Words(words + [b"pad"] * 128)) == ""
    assert "its vocabulary has 1129 tokens and the target's 1000" in why(Words(words), Words(words + [b"pad"] * 129))
    # Whatever the block, and also where one list ends within it.
    for i in (255, 256, 511, 990, 999):
        other = [*words[:i], b"\x00\xff", *words[i + 1 :]]
        for target, draft in ((words, other), (words, [*other, b"more"]), ([*words, b"more"], other)):
            assert f"token {i} is '\\x00\ufffd' in the draft and 'w{i}' in the target" in why(
                Words(target), Words(draft)
            )
    assert "different types (2 and 1)" in why(Words(words), Words(words, type=2))
    assert "its BOS token is 7 and the target's is 1" in why(Words(words), Words(words, bos=7))
    assert why(Words(words, add_bos=False), Words(words, add_bos=False, bos=7)) == ""
    assert "it ends a text with its EOS token and the target without;" in why(Words(words), Words(words, add_eos=True))


@pytest.mark.parametrize("name", ["logits_processor", "stopping_criteria"])
def test_a_function_that_must_run_beside_the_target_is_refused(name: str, verify_host: HostProcess) -> None:
    with Duo(None, demo_pair()[1], verify_host=verify_host.address) as d:
        with pytest.raises(DuoError, match=f"{name} runs beside the target, which is on another machine"):
            d.generate("Once", **{name: lambda ids, scores: scores})
        assert d.generate("Once", max_tokens=2).tokens


def test_a_head_is_refused_before_anything_connects() -> None:
    """It reads its target's hidden states, which cross no network. Nobody listens at the address."""
    head = demo_pair()[0].with_name("duo-demo-eagle3-q8_0.gguf")
    with pytest.raises(DuoError, match=r"is a draft head, .* use a draft model for a target elsewhere"):
        Duo(None, head, verify_host="127.0.0.1:1", n_ctx=256)
