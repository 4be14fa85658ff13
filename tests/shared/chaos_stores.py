"""Where the sources and the datasets of a chaos case lie: on a disk, in S3, or in S3 over a bad network.

One server holds both. What is over the bad network is told by the keys, so that sources may be while datasets are not.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from chaos_corpus import Corpus
from dataset_places import folders, prefixes, s3_settings
from flaky_proxy import FLAKY, Faults, FlakyProxy, flaky_proxy
from ray_machines import Machines
from s3_server import BUCKET, make_bucket, running
from shortgop.storage.interface import Storage
from store_helpers import put

KINDS = ("disk", "s3", "flaky")
# What keys of sources hold, and no others, and what those of datasets do.
_OF_SOURCES, _OF_DATASETS = "/sources", "/dataset"


@dataclass
class Stores:
    """Where sources and datasets may lie. `proxy` is None where nothing lies in S3."""

    corpus: Corpus
    folder: Path
    proxy: FlakyProxy | None = None
    _far: list[Corpus] = field(default_factory=list)

    def new(self, kind: str) -> Storage:
        """A new place of this kind for a dataset."""
        return (folders(self.folder) if kind == "disk" else prefixes()).new()

    def corpus_at(self, kind: str) -> Corpus:
        """The corpus with its sources at a place of this kind."""
        if kind == "disk":
            return self.corpus
        if not self._far:
            self._far.append(put_corpus(self.corpus))
        return self._far[0]

    @contextlib.contextmanager
    def disturbed(self, sources: str, dataset: str, seed: int) -> Iterator[None]:
        """Requests fail now and then in the block: of sources and datasets if these are "flaky"."""
        kinds = (sources, dataset)
        if self.proxy is None or "flaky" not in kinds:
            yield
            return
        only = "" if kinds == ("flaky", "flaky") else _OF_SOURCES if sources == "flaky" else _OF_DATASETS
        self.proxy.faults(replace(FLAKY, seed=seed, only=only))
        try:
            yield
        finally:
            self.proxy.faults(Faults())


@contextlib.contextmanager
def stores_of(cluster: Machines, corpus: Corpus, folder: Path, kinds: Collection[str]) -> Iterator[Stores]:
    """Places of these kinds that all machines reach. None of them may run yet: they need the settings of S3."""
    if set(kinds) == {"disk"}:
        yield Stores(corpus, folder)
        return
    with s3_behind_proxy(cluster) as proxy:
        yield Stores(corpus, folder, proxy)


@contextlib.contextmanager
def s3_behind_proxy(cluster: Machines) -> Iterator[FlakyProxy]:
    """An S3 server that all machines reach through the proxy, as above. Nothing goes wrong until the proxy is told."""
    with contextlib.ExitStack() as servers:
        server = servers.enter_context(running("s3_server.py", "0.0.0.0"))
        make_bucket(server, BUCKET)
        proxy = servers.enter_context(flaky_proxy(server, "0.0.0.0"))
        servers.enter_context(s3_settings(f"http://{cluster.here_ip}:{proxy.endpoint.rpartition(':')[2]}"))
        yield proxy


def put_corpus(corpus: Corpus) -> Corpus:
    """The corpus with its sources in the store that the environment names."""
    url = f"s3://{BUCKET}/{uuid.uuid4().hex}{_OF_SOURCES}"
    for has_sections in (False, True):
        folder = Path(corpus.sources(has_sections))
        for file in folder.iterdir():
            put(f"{url}/{folder.name}/{file.name}", file)
    return replace(corpus, url=url)
