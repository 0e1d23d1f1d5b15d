"""The ranks on Dask: a cluster of this machine's cores, or a scheduler that runs somewhere."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from .. import __version__
from ..errors import MissingExtra, UnusableInput
from ..text import clean, shorten
from .inputs import Piece
from .result import RankResult
from .summary import diagnose_rank, failed

TIMEOUT_S = 15
"""To find the scheduler, and a worker of it."""
STALLED_S = 60
"""Without a worker, after which nobody is waited for any longer."""
LOST = "the scheduler was lost before all ranks were done"
ADDRESS = "Give the address that `dask scheduler` prints"
LOOK_S = 0.02
"""Between two looks at what has arrived."""
ASK_S = 1.0
"""For a result that is there, before looking whether its worker still is."""

Progress = Callable[[int, int], None]
"""Called with (ranks done, ranks in all)."""


def diagnose_all(pieces: Sequence[Piece], *, scheduler: str | None = None, workers: int | None = None,
                 progress: Progress | None = None) -> list[RankResult]:
    """Each piece diagnosed, in the order given.

    `scheduler`: the address of a running one, `tcp://10.0.0.1:8786`, whose workers have this version of the package and
    see the same paths; without it a local cluster of `workers` processes (a core each) is started for as long as it
    takes. What was running or held on a worker that dies is done again elsewhere; evidence that takes its worker down
    each time, the last time alone, is given up, and its rank says so.

    Raises MissingExtra without Dask, UnusableInput where the scheduler does not answer, has no worker or one of another
    version, or is lost on the way.
    """
    dask = _distributed()
    with _client(dask, scheduler, workers, len(pieces)) as client:
        try:
            return _gathered(dask, client, pieces, progress)
        except (dask.client.FutureCancelledError, dask.comm.CommClosedError):
            raise UnusableInput(LOST, where=scheduler or "local cluster", todo="Start it again") from None


def _distributed() -> Any:
    """The package, whose functions carry no types."""
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise MissingExtra("dask[distributed]", "fleet") from error


def _gathered(dask: Any, client: Any, pieces: Sequence[Piece], progress: Progress | None) -> list[RankResult]:
    results: dict[int, RankResult] = {}

    def tried(places: Sequence[int]) -> list[int]:
        """Diagnose these; returns those whose workers died."""
        died = []
        run = uuid4().hex  # new keys each time: the same evidence is read again, it may have changed
        place = {f"rank-{i}-{run}": i for i in places}
        for future in _arriving(dask, client, client.map(diagnose_rank, [pieces[i] for i in places], key=list(place))):
            i = place[future.key]
            if (result := _result(dask, client, future)) is None:
                died.append(i)
            else:
                results[i] = result
                if progress is not None:
                    progress(len(results), len(pieces))
            future.release()
        return died

    for i in tried(range(len(pieces))):  # who was on the worker when another took it down is not to blame
        if tried([i]):
            results[i] = failed(pieces[i], f"{pieces[i].label}: its worker died over it each time it was tried: too "
                                           "little memory for it?")
    return [results[i] for i in range(len(pieces))]


def _arriving(dask: Any, client: Any, futures: list[Any]) -> Iterator[Any]:
    """The futures as they are done; each is let go as soon as its result is here, and the cluster's copy with it."""
    waiting = dask.as_completed(futures)
    futures.clear()
    since = time.monotonic()
    while not waiting.is_empty():
        if waiting.has_ready():
            yield next(waiting)
            since = time.monotonic()
        else:
            time.sleep(LOOK_S)
            _still_there(client, since)


def _result(dask: Any, client: Any, future: Any) -> RankResult | None:
    """What the worker says, done again where the one that held it has gone; None where its workers died over it."""
    since = time.monotonic()
    try:
        while True:
            try:
                result: RankResult = future.result(timeout=ASK_S)
                return result
            except dask.TimeoutError:
                _still_there(client, since)
    except dask.KilledWorker:
        return None
    except ModuleNotFoundError as error:
        raise UnusableInput(f"a worker lacks a package ({error})",
                            todo="Install xpu-triage where the workers run") from None


def _still_there(client: Any, since: float) -> None:
    """Raises UnusableInput where nobody is left to wait for: no scheduler, or no worker long after `since`."""
    if client.status != "running":  # it would come back, without what it knew
        raise UnusableInput(LOST, todo="Start it again")
    if time.monotonic() - since > STALLED_S and not client.scheduler_info(n_workers=-1)["workers"]:
        raise UnusableInput("the last worker is gone", todo="Start workers that stay, and ask again")


@contextmanager
def _client(dask: Any, scheduler: str | None, workers: int | None, ranks: int) -> Iterator[Any]:
    with _quiet():
        if scheduler is None:
            cores = importlib.import_module("dask.system").CPU_COUNT
            cluster = dask.LocalCluster(
                n_workers=max(1, min(workers or cores, ranks)), threads_per_worker=1, processes=True, host="127.0.0.1",
                dashboard_address=None, silence_logs=logging.CRITICAL)
            with cluster, dask.Client(cluster) as client:
                yield client
            return
        try:
            client = dask.Client(scheduler, timeout=TIMEOUT_S)
        except Exception as error:  # what answers there may be anything, and Dask takes its bytes for sizes and frames
            known = isinstance(error, OSError | ValueError | TypeError | ImportError)
            what = "no scheduler answers" if known else "what answers there is no scheduler"
            raise UnusableInput(f"{what} ({_one_line(error)})", where=scheduler,
                                todo=ADDRESS) from None
        with client:
            _check(client, scheduler)
            yield client


def _check(client: Any, scheduler: str) -> None:
    """That there are workers, and that they run this version."""
    try:
        client.wait_for_workers(1, timeout=TIMEOUT_S)
    except TimeoutError:
        raise UnusableInput("the scheduler has no worker", where=scheduler,
                            todo="Start some: dask worker ADDRESS --nthreads 1") from None
    try:
        versions: dict[str, Any] = client.run(version)
    except Exception as error:  # whatever a worker's interpreter makes of a package that it lacks
        raise UnusableInput(f"its workers cannot run xpu-triage ({_one_line(error)})", where=scheduler,
                            todo="Install xpu-triage where the workers run") from None
    others = sorted({str(found) for found in versions.values() if found != __version__})
    if others:
        raise UnusableInput(f"its workers have xpu-triage {', '.join(others)}, here is {__version__}", where=scheduler,
                            todo="Install the same version on both sides")


def version() -> str:
    """The package's version, as a worker has it."""
    return __version__


@contextmanager
def _quiet() -> Iterator[None]:
    """Dask's own log off: what matters of it is raised or said of a rank."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    before = [(logger := logging.getLogger(name), logger.level) for name in names]
    for logger, _ in before:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in before:
            logger.setLevel(level)


def _one_line(error: BaseException) -> str:
    return clean(shorten(" ".join(str(error).split()), 160)) or type(error).__name__
