"""Models from the Hugging Face Hub: "user/repo[:quant]" becomes a path in its usual cache."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from duo.errors import BadValueError, DuoError, PeerLostError
from duo.models.hub import head_files
from duo.models.hub import listing as hub_files
from duo.models.hub.settings import HubSettings


class HubModel(NamedTuple):
    """A model in a repository: a quantisation, a file, or neither (llama.cpp's default)."""

    repo: str  # user/repo
    quant: str | None = None
    file: str | None = None  # a name, or a pattern that matches one file
    heads: tuple[str, ...] = ()  # kinds of draft heads (head_files.KINDS); the first one there is taken, not the model

    def __str__(self) -> str:
        return self.repo + (f" {self.file}" if self.file else f":{self.quant}" if self.quant else "")


def parse(text: str, file: str | None = None, flag: str = "") -> HubModel:
    """ "user/repo" or "user/repo:quant". flag: the option that gave it. Raises BadValueError."""
    match = re.fullmatch(r"([\w.-]+/[\w.-]+)(?::([\w.-]+))?", text, re.ASCII)
    if match is None:
        where = f" ({flag})" if flag else ""
        raise BadValueError(f"{text!r}{where} is not a repository; write it as user/repo or user/repo:quant")
    return HubModel(match[1], match[2], file)


class Hub(HubSettings):
    """The models of a hub, from the cache or from the server."""

    def fetch(self, source: HubModel) -> Path:
        """The model's file, or the first of its parts. Downloads what the cache does not have.

        If the hub does not answer or refuses, or the download fails, what the cache has is taken. Raises
        UnknownModelError, AccessDeniedError, PeerLostError, BusyError, DoesNotFitError or DuoError.
        """
        path, (files, commit) = self._look(source)
        return path or self._download(source.repo, files, commit)

    def fetch_head(self, of_target: HubModel, kinds: tuple[str, ...]) -> Path | None:
        """The head for a target that was fetched, from its repository; None if that has none of these kinds. Raises as
        fetch."""
        # Fetching the target has already given the notes.
        quiet = replace(self, note=lambda _: None, listings={} if self.listings is None else self.listings)
        return quiet.noted_head(of_target, kinds) if kinds else None

    def noted_head(self, of_target: HubModel, kinds: tuple[str, ...]) -> Path | None:
        """fetch_head with this hub's notes."""
        path, (files, commit) = self._look(of_target._replace(heads=kinds))
        if path is not None:
            return None if path == self._cached(of_target) else path
        # Without a head the model is chosen, of which the cache may have an earlier commit.
        is_model = files == self._look(of_target)[1][0]
        return None if is_model else self._download(of_target.repo, files, commit)

    def has(self, repo: str) -> bool:
        """Whether the cache has anything of a repository."""
        return bool(self._snapshots(repo))

    def heads(self, source: HubModel, folder: Path) -> Path:
        """For reading the header: the model if the cache has it, otherwise a stand-in without weights in `folder`.

        Raises as fetch.
        """
        from duo.models.hub.download import heads

        path, (files, commit) = self._look(source)
        for cached in self._snapshots(source.repo) if path is None else ():
            if all(hub_files.is_whole(cached / name, file) for name, file in files.items()):
                return cached / next(iter(files))
        return path or heads(self, source.repo, files, commit, folder)

    def _look(self, source: HubModel) -> tuple[Path | None, tuple[dict[str, hub_files.HubFile], str]]:
        """The model in the cache if the hub lists nothing; otherwise its files with their sizes, and the commit."""
        if self.offline:
            return self._cached(source), ({}, "")
        try:
            files, commit = self._listed(source.repo)
        except DuoError as e:
            return self._instead(source, e), ({}, "")
        names = self._chosen(list(files), source, f"{self.endpoint}/{source.repo}")
        return None, ({n: files[n] for n in names}, commit)

    def _download(self, repo: str, files: dict[str, hub_files.HubFile], commit: str) -> Path:
        """The first of these files; or that of an earlier commit, from the cache. Raises as fetch."""
        from duo.models.hub.download import download, drop_damaged

        drop_damaged(self, repo, files, commit)
        try:
            return download(self, repo, files, commit)
        except DuoError as e:
            # The same file, and not another quantisation, or a model without its head.
            return self._instead(HubModel(repo, file=next(iter(files))), e, " of an earlier commit")

    def _listed(self, repo: str) -> hub_files.Listing:
        """Raises as download.listing."""
        from duo.models.hub.download import listing

        listings = {} if self.listings is None else self.listings
        if repo not in listings:
            listings[repo] = listing(self, repo)
        return listings[repo]

    def _chosen(self, names: list[str], source: HubModel, where: str) -> list[str]:
        files = [n for n in names if n.lower().endswith(".gguf")]
        if source.file is not None:
            chosen, offers = hub_files.match(names, source.file), files
            missing = f"there is no file {source.file} in {where}"
        else:
            chosen = hub_files.choose(names, source.quant)
            offers = hub_files.quants(names)
            missing = f"there is no {source.quant} in {where}" if source.quant else f"{where} has no GGUF model"
        if source.heads:
            chosen = head_files.find(names, source.heads, chosen or "", source.quant) or chosen
        if chosen is None:
            # A model whose name is like a head's is found by its whole name only.
            other = f"name a file of it ({hub_files.shown(files)})" if files else "choose a repository with GGUF files"
            advice = f"choose from {hub_files.shown(offers)}" if offers else other
            raise hub_files.MissingFileError(missing, advice)
        return hub_files.parts_of(names, chosen)

    # ---- the cache

    def _instead(self, source: HubModel, e: DuoError, which: str = "") -> Path:
        """The model in the cache, because the hub does not give it. e: why not, which is raised if the cache lacks
        it, too. which: for the note."""
        from duo.models.hub.download import UnreachableError

        is_silent = isinstance(e, UnreachableError)
        try:
            path = self._cached(source)
        except DuoError as lacking:
            if not is_silent:
                raise e from None
            if not isinstance(lacking, hub_files.MissingFileError):
                raise
            raise PeerLostError(f"{e}, and {lacking.what}; check the network") from None
        why = f"{self.endpoint} cannot be reached" if is_silent else str(e)
        self.note(f"{why}; {path.name}{which} of {source.repo} is taken from the cache")
        return path

    def _cached(self, source: HubModel) -> Path:
        """Of any revision: from the newest snapshot that has it. Raises MissingFileError, and DuoError as _chosen."""
        error: hub_files.MissingFileError | None = None
        for folder in self._snapshots(source.repo):
            names = _files_in(folder)
            if any(n.lower().endswith(".gguf") for n in names):
                try:
                    return folder / self._chosen(names, source, f"the cache ({self.cache})")[0]
                except hub_files.MissingFileError as e:
                    error = error or e
        raise error or hub_files.MissingFileError(
            f"the cache {self._has(source.repo)}", "leave out --offline once to download it"
        )

    def _snapshots(self, repo: str) -> list[Path]:
        """Those of a repository in the cache, the newest first. Raises DuoError: the folder may not be read."""
        root = self.cache / ("models--" + repo.replace("/", "--"))
        try:
            newest = (root / "refs" / "main").read_text("utf-8", errors="replace").strip()
        except OSError:
            newest = ""
        folders = [p for p in _found(root / "snapshots", "*") if os.path.isdir(p)]
        return sorted(folders, key=lambda p: (p.name == newest, p.stat().st_mtime), reverse=True)

    def _has(self, repo: str) -> str:
        """ "(FOLDER) has no X, but Y and Z": the end of a sentence."""
        others = sorted(self.repositories())
        return f"({self.cache}) has no {repo}" + (
            f", but {hub_files.shown(others)}" if others else " and no other model"
        )

    def repositories(self) -> Iterator[str]:
        """Repositories with a model in the cache."""
        for root in _found(self.cache, "models--*--*"):
            repo = root.name.removeprefix("models--").replace("--", "/", 1)
            if any(hub_files.is_model(name) for folder in self._snapshots(repo) for name in _files_in(folder)):
                yield repo


def from_hub(
    repo: str,
    file: str | None = None,
    heads: tuple[str, ...] = (),
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    token: str | None = None,
    offline: bool | None = None,
) -> Path:
    """Path of a model from the hub, downloaded if necessary. heads: kinds that are taken before a model, if no file is
    named. Defaults: from the environment. Raises as Hub.fetch."""
    settings = {"cache": None if cache_dir is None else Path(cache_dir), "token": token, "offline": offline}
    hub = replace(Hub(), **{k: v for k, v in settings.items() if v is not None})  # type: ignore[arg-type]
    return hub.fetch(parse(repo, file)._replace(heads=() if file else heads))


def _found(folder: Path, pattern: str) -> list[Path]:
    """Paths in the cache. Raises DuoError: the folder may not be read."""
    try:
        os.scandir(folder).close()  # glob() would find nothing where it may not read
        return list(folder.glob(pattern))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as e:
        raise DuoError(
            f"the cache {folder} cannot be read ({e.strerror}); check its permissions, or set LLAMA_CACHE"
        ) from None


def _files_in(folder: Path) -> list[str]:
    # isfile() is false for links to deleted data.
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if os.path.isfile(p))


def cached_models(cache: Path | None = None) -> list[str]:
    """What -hf finds without a network, as user/repo:QUANT, sorted. cache: None: the one that the environment names."""
    models: set[str] = set()
    for folder in _found(HubSettings(token=None).cache if cache is None else cache, "models--*/snapshots/*"):
        repo = folder.parent.parent.name.removeprefix("models--").replace("--", "/", 1)
        names = [p.relative_to(folder).as_posix() for p in folder.rglob("*.gguf") if os.path.isfile(p)]
        models |= {str(HubModel(repo, hub_files.quant_of(n) or None)) for n in names if hub_files.is_model(n)}
    return sorted(models)
