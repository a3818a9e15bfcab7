"""Files from public URLs, kept in the cache and checked by their hashes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from noisin._util import lazy, places
from noisin.data import cache
from noisin.errors import InvalidData, NoisinError, Unavailable

TIMEOUT = 20  # seconds without an answer


@contextmanager
def fetched(name: str, url: str, sha256: Mapping[str, str]) -> Iterator[dict[str, Path]]:
    """The files of a data set, downloaded unless they are in the cache.

    If the cache is not writable, they are in a temporary folder that is removed after the context.
    """
    with tempfile.TemporaryDirectory() as aside:
        try:
            files = _fetch(places.made(places.cache() / "text" / name), name, url, sha256)
        except NoisinError:
            raise
        except (OSError, RuntimeError):
            files = _fetch(Path(aside), name, url, sha256)
        yield files


def _fetch(folder: Path, name: str, url: str, sha256: Mapping[str, str]) -> dict[str, Path]:
    return {
        split: _retrieve(folder / f"{split}.txt", name, url.format(split=split), known)
        for split, known in sha256.items()
    }


def _retrieve(path: Path, name: str, url: str, sha256: str) -> Path:
    with lazy.installed("downloading a text", "train"):
        import pooch  # type: ignore[import-untyped]
        from requests.exceptions import RequestException

    cache.remove_stale(path.parent, "tmp*")  # pooch's names for incomplete downloads
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # only the command line prints
    try:
        pooch.retrieve(
            url,
            known_hash=f"sha256:{sha256}",
            fname=path.name,
            path=path.parent,
            downloader=pooch.HTTPDownloader(timeout=TIMEOUT, chunk_size=2**16),
        )
    except RequestException as error:
        raise Unavailable(
            f"{name}: {url} cannot be reached ({type(error).__name__}). Connect to the network, or "
            f"get the files elsewhere and pass their folder: --data FOLDER or NOISIN_DATA."
        ) from None
    except ValueError:
        raise InvalidData(
            f"{name}: the file from {url} is not the expected one (its sha256 is not {sha256}). "
            f"Try again, or pass a folder that contains it: --data FOLDER or NOISIN_DATA."
        ) from None
    finally:
        logger.setLevel(level)
    return path
