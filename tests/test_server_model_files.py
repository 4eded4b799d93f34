"""What clients are told of the models' files: names, and not where they are."""

from duo.server.model_files import without_folders

FILES = {"/srv/my models/big-00001-of-00002.gguf", "here/draft.gguf", "/at-root.gguf", "plain.gguf"}


def test_sentences_name_files_without_their_folders() -> None:
    for path in FILES:
        name = path.rpartition("/")[2]
        assert without_folders(f"{path} computes NaN ({path})", FILES) == f"{name} computes NaN ({name})"
    other = "/srv/my models/big-00002-of-00002.gguf is truncated"
    assert without_folders(other, FILES) == "big-00002-of-00002.gguf is truncated"


def test_other_paths_stay() -> None:
    for sentence in ("there is no route /v1/here/draft", "http://host/a/b cannot be reached", "/srv/other.gguf"):
        assert without_folders(sentence, FILES) == sentence
