"""The options of `Duo` for n-gram caches, which are files of llama.cpp's lookup decoding."""

from typing import TYPE_CHECKING, Annotated

from typing_extensions import TypedDict

from duo.options.option import SPEC_ALIASES, FilePath, opt
from duo.options.speculation import says_plain

if TYPE_CHECKING:
    from duo.options.generate import GenerateOptions


class LookupOptions(TypedDict, total=False):
    """What came after short n-grams in other texts makes guesses, beside the n-grams of the text itself."""

    lookup_cache_static: Annotated[
        FilePath | None,
        opt(None, "N-gram cache of a large corpus (a file of llama-lookup-create), for guesses. It is not changed.",
            "-lcs", "--lookup-cache-static", metavar="FILE"),
    ]  # fmt: skip
    lookup_cache_dynamic: Annotated[
        FilePath | None,
        opt(None, "N-gram cache of earlier texts, for guesses (a file of llama-lookup). Those that are written are "
                  "added at the end; without the file, it is made.",
            "-lcd", "--lookup-cache-dynamic", metavar="FILE"),
    ]  # fmt: skip


def add_ngrams_of_files(defaults: "GenerateOptions", options: LookupOptions, *, drafted: bool) -> None:
    """Whoever names a file wants its guesses, unless something else was said about guesses. defaults: of texts."""
    files = options["lookup_cache_static"], options["lookup_cache_dynamic"]
    if any(files) and "spec_type" not in defaults and not says_plain(defaults):
        defaults["spec_type"] = [*["draft-simple"] * drafted, SPEC_ALIASES["ngram-cache"]]
