"""Pictures' files are checked before they are decoded, and URLs before anything is fetched."""

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from vision_models import png, png_of

from duo import BadValueError
from duo.chat.pictures import Pictures, between, data_url
from duo.server import media
from duo.server.media import Media, public_address
from duo.support.picture_file import N_MOST, check_pictures

JPEG = b"\xff\xd8\xff\xe0\x00\x04xx\xff\xc0\x00\x0b\x08" + struct.pack(">HH", 30, 40) + b"\x01\x01\x11\x00"


@pytest.mark.parametrize(
    "data",
    [
        png(), JPEG, b"GIF89a" + struct.pack("<HH", 10, 20) + b"\0" * 20,
        b"BM" + b"\0" * 12 + struct.pack("<Iii", 40, 10, -20),
    ],
)  # fmt: skip
def test_pictures_pass(data: bytes) -> None:
    check_pictures([data])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (png_of(60_000, 60_000, b""), "60000 x 60000"),
        (b"GIF89a" + struct.pack("<HH", 60_000, 60_000), "60000 x 60000"),
        (JPEG.replace(struct.pack(">HH", 30, 40), struct.pack(">HH", 60_000, 60_000)), "60000 x 60000"),
        (JPEG[:12], "damaged"),
        (png()[:20], "damaged"),
        (png()[:-30], "damaged"),
        (png_of(0, 5, b""), "no pixels"),
        (b"<?xml version='1.0'?><svg/>", "SVG"),
        (b"", "no picture"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "no picture"),
        (b"ID3\x03" + b"\0" * 40, "no picture"),
    ],
)
def test_others_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadValueError, match=why):
        check_pictures([data])


def test_a_picture_with_more_data_than_its_size_is_refused() -> None:
    with pytest.raises(BadValueError, match="more data"):
        check_pictures([png_of(10, 10, b"\0" * 50_000_000)])


def large_jpeg(*parts: bytes) -> bytes:
    """Of 12 million pixels: a second scan would be fine, a hundred are not."""
    return JPEG.replace(struct.pack(">HH", 30, 40), struct.pack(">HH", 3000, 4000)) + b"".join(parts)


SCAN, END = bytes.fromhex("ffda000c03010002000300000010"), b"\xff\xd9"


def test_scans_of_thumbnails_and_behind_the_end_do_not_count() -> None:
    many = SCAN * 200
    for honest in (
        large_jpeg(b"\xff\xe1" + struct.pack(">H", len(many) + 2) + many, SCAN, END),
        large_jpeg(SCAN, b"\x12\xff\x00\xda\xff\xd0\xda\xff\xff", END, many),
        large_jpeg(SCAN, END, random.Random(1).randbytes(6 << 20)),
    ):
        check_pictures([honest])
    for hidden in (b"", b"\xff", b"\x00junk\xff\x00", b"\xff\xd3", b"\xff\xfe\x00\x04\xff\xd9"):
        with pytest.raises(BadValueError, match="scans"):
            check_pictures([large_jpeg((SCAN + hidden) * 200, END)])
    for endless in (b"\xff\xfe\x00\x02" * (2 << 20), b"\xff" * (8 << 20), b"\xff\x01" * (4 << 20)):
        with pytest.raises(BadValueError, match="damaged"):
            check_pictures([JPEG[:2] + endless])  # at once: each byte in turn would take seconds
    with pytest.raises(BadValueError, match="damaged"):
        check_pictures([JPEG + b"\xff\xfe\x00\x02" * 200_000])  # behind the size


def test_there_are_not_too_many() -> None:
    with pytest.raises(BadValueError, match=f"at most {N_MOST}"):
        check_pictures([png()] * (N_MOST + 1))
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(BadValueError, match=f"more than {N_MOST}"):
        Pictures().taken_out_of([{"role": "user", "content": [part] * 10_000}])


def test_markers_are_joined_as_in_llama_cpp() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    words = [{"type": "text", "text": t} for t in "abc"]
    p = Pictures()
    found = p.taken_out_of([{"role": "user", "content": [words[0], picture, words[1], words[2]]}])
    assert found == [{"role": "user", "content": f"a{p.marker}b\nc"}] and p.files == [b"\0\0\0"]
    assert p.between(f"x{p.marker}y") == ["x", b"\0\0\0", "y"]
    assert between("y", "<m>", [b"1", b"2"]) == [b"1", b"2", "y"]


@pytest.mark.parametrize("url", ["data:image/png,AAAA", "data:image/png;base64,%%%", "http://x/y.png", "x"])
def test_bad_data_urls(url: str) -> None:
    with pytest.raises(BadValueError):
        data_url(url)


def test_files_of_the_media_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "media"
    folder.mkdir()
    (folder / "a.png").write_bytes(png())
    (tmp_path / "secret.png").write_bytes(png())
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    served = Media(folder)
    assert served.file("file://a.png") == served.file("file:///a.png") == png()
    for name in (
        "../secret.png",
        "%2e%2e/secret.png",
        "link.png",
        "no.png",
        "",
        "a.png\0",
        str(tmp_path / "secret.png"),
    ):
        with pytest.raises(BadValueError, match="media folder"):
            served.file(f"file://{name}")
    with pytest.raises(BadValueError, match="--media-path"):
        Media().file("file:///etc/passwd")
    with pytest.raises(BadValueError, match="--media-url"):
        Media().file("https://example.com/x.png")
    with pytest.raises(BadValueError, match="data: URL"):
        served.file("ftp://example.com/x.png")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "::1", "fe80::1", "::ffff:127.0.0.1", "0.0.0.0"]
)
def test_addresses_inside_a_network_are_refused(host: str) -> None:
    with pytest.raises(BadValueError, match="inside a network"):
        public_address(host, 80)
    shown = f"[{host}]" if ":" in host else host
    with pytest.raises(BadValueError, match="inside a network"):
        Media(urls=True).file(f"http://{shown}:1/x.png")


def test_a_redirection_to_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "_answer", lambda *_: "http://[")
    with pytest.raises(BadValueError, match=r"the URL 'http://\[', which cannot be read"):
        Media(urls=True).file("http://example.com/x.png")


@contextmanager
def drips(answer: bytes) -> Iterator[int]:
    """The port of a server that sends a byte of this every 20 ms, and at last the rest."""
    stop = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            for byte in answer[:50]:
                connection.sendall(bytes([byte]))
                if stop.wait(0.02):
                    return
            connection.sendall(answer[50:])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        stop.set()
        thread.join(60)


BODY = png(9, 9)
OK = b"HTTP/1.1 200 OK\r\n"
SLOW = {
    "header": OK + b"X: y\r\n" * 9 + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY),
    "chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n%x;%b\r\n%b\r\n0\r\n\r\n" % (len(BODY), b"x" * 90, BODY),
}


@pytest.mark.parametrize("kind", SLOW)
def test_a_slow_server_does_not_hold_the_thread(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte is in time, all of them are not."""
    monkeypatch.setattr(media, "public_address", lambda host, port: (host, port))
    with drips(SLOW[kind]) as port:
        assert Media(urls=True).file(f"http://127.0.0.1:{port}/x.png") == BODY
    monkeypatch.setattr(media, "TIMEOUT_S", 0.2)
    with drips(SLOW[kind]) as port, pytest.raises(BadValueError, match=r"cannot be fetched \(TimeoutError\)"):
        Media(urls=True).file(f"http://127.0.0.1:{port}/x.png")
