"""The forest of host rows, against drawings and against the plain definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders import Rows
from xpu_triage.steps.host import Host, NameTable
from xpu_triage.trace import Kind, Trace


def names_of(trace: Trace, host: Host, indices: list[int]) -> list[str]:
    return [trace.name_of(int(host.row[i])) if i >= 0 else "-" for i in indices]


def index_of(trace: Trace, host: Host, name: str) -> int:
    return next(i for i in range(len(host)) if trace.name_of(int(host.row[i])) == name)


def nested() -> tuple[Trace, Host]:
    """step(0-100) > forward(10-60) > mm(20-40) > launch(25-30); sampler(70-90); other thread: feed(0-120)."""
    rows = Rows()
    rows.annotation("step", 0, 100)
    rows.python("forward", 10, 50)
    rows.op("mm", 20, 20)
    rows.call("launch", 25, 5)
    rows.op("sampler", 70, 20)
    rows.op("feed", 0, 120, thread="feeder")
    trace = rows.trace()
    return trace, Host(trace)


def test_a_path_runs_from_the_root_down() -> None:
    trace, host = nested()
    assert names_of(trace, host, host.path(index_of(trace, host, "launch"))) == ["step", "forward", "mm", "launch"]


def test_threads_do_not_enclose_each_other() -> None:
    trace, host = nested()
    assert host.path(index_of(trace, host, "feed")) == [index_of(trace, host, "feed")]


def test_sums_below_run_over_all_descendants() -> None:
    trace, host = nested()
    below = host.below(np.ones(len(host)))
    assert [below[index_of(trace, host, n)] for n in ("step", "forward", "mm", "launch", "feed")] == [5, 3, 2, 1, 1]


def test_the_pieces_of_an_interval_are_those_of_the_innermost_rows() -> None:
    trace, host = nested()
    main = np.array([trace.threads.index("main")])
    _, owner, ns = host.pieces(main, np.array([5_000]), np.array([110_000]))
    assert list(zip(names_of(trace, host, owner.tolist()), (ns // 1000).tolist(), strict=True)) == [
        ("step", 5), ("forward", 10), ("mm", 5), ("launch", 5), ("mm", 10), ("forward", 20), ("step", 10),
        ("sampler", 20), ("step", 10), ("-", 10)]


def test_around_finds_the_outermost_and_nearest_the_innermost() -> None:
    trace, host = nested()
    launch = index_of(trace, host, "launch")
    mask = np.isin(names_of(trace, host, list(range(len(host)))), ["forward", "mm"])
    assert names_of(trace, host, [int(host.around(mask)[launch])]) == ["forward"]
    assert names_of(trace, host, host.nearest(np.array([launch]), mask).tolist()) == ["mm"]
    assert host.around(mask)[index_of(trace, host, "sampler")] == -1
    assert host.nearest(np.array([-1]), mask).tolist() == [-1]


def test_an_annotation_that_outlives_the_frame_of_its_enter_holds_what_runs_in_it() -> None:
    rows = Rows()
    rows.python("torch/autograd/profiler.py(7): __enter__", 0, 10)
    rows.annotation("step", 8, 92)
    rows.op("mm", 20, 20)
    trace = rows.trace()
    host = Host(trace)
    assert names_of(trace, host, host.path(index_of(trace, host, "mm"))) == ["step", "mm"]


def test_a_child_that_ends_late_by_rounding_is_cut_to_its_parent() -> None:
    rows = Rows()
    rows.op("linear", 0, 10)
    rows.op("addmm", 5, 6)
    trace = rows.trace()
    host = Host(trace)
    assert names_of(trace, host, host.path(1)) == ["linear", "addmm"]
    assert host.end.tolist() == [10_000, 10_000]


def test_of_rows_with_the_same_times_the_annotation_is_outside_the_operator_outside_the_call() -> None:
    rows = Rows()
    rows.call("launch", 0, 10)
    rows.op("mm", 0, 10)
    rows.annotation("step", 0, 10)
    trace = rows.trace()
    host = Host(trace)
    assert names_of(trace, host, host.path(index_of(trace, host, "launch"))) == ["step", "mm", "launch"]


def test_a_trace_without_host_rows_has_an_empty_forest() -> None:
    rows = Rows()
    rows.kernel("gemm", 0, 5)
    host = Host(rows.trace())
    which, owner, ns = host.pieces(np.array([0]), np.array([0]), np.array([7]))
    assert (which.tolist(), owner.tolist(), ns.tolist()) == ([0], [-1], [7])
    assert host.innermost(np.array([0]), np.array([3])).tolist() == [-1]
    assert host.index(np.array([0, -1, -2])).tolist() == [-1, -1, -1]


boxes = st.recursive(st.just([]), lambda inner: st.lists(st.tuples(st.integers(1, 3), inner), max_size=3), max_leaves=8)


def lay(rows: Rows, tree: list, at: int, made: list[tuple[int, int, int]], parent: int) -> int:
    """Lay a tree of boxes on the time line; children one after another inside their parent. Returns its width."""
    width = 1
    for pad, inner in tree:
        start = at + width + pad
        me = len(made)
        made.append((start, 0, parent))
        inside = lay(rows, inner, start, made, me) + 1
        made[me] = (start, inside, parent)
        width += pad + inside
    return width


@given(boxes)
def test_parents_and_exclusive_times_are_those_of_the_drawn_tree(tree: list) -> None:
    made: list[tuple[int, int, int]] = []
    rows = Rows()
    width = lay(rows, tree, 0, made, -1)
    rows.annotation("root", 0, width + 1)
    for i, (start, dur, _) in enumerate(made):
        rows.op(f"box {i}", start, dur)
    trace = rows.trace()
    host = Host(trace)
    name = names_of(trace, host, list(range(len(host))))
    for i, (_, dur, parent) in enumerate(made):
        at = name.index(f"box {i}")
        assert name[host.parent[at]] == ("root" if parent < 0 else f"box {parent}")
        inside = sum(d for _, d, p in made if p == i)
        _, owner, ns = host.pieces(np.array([0]), np.array([0]), np.array([trace.span]))
        assert ns[owner == at].sum() == (dur - inside) * 1000


def test_a_name_is_matched_only_among_the_kinds_where_it_occurs() -> None:
    rows = Rows()
    rows.op("memcpy", 0, 1)
    rows.call("memcpy", 2, 1)
    rows.call("launch", 4, 1)
    table = NameTable(rows.trace())
    assert table.rows(lambda name: "memcpy" in name, Kind.RUNTIME).tolist() == [False, True, False]
    assert table.rows(lambda name: "memcpy" in name, Kind.RUNTIME, Kind.HOST_OP).tolist() == [True, True, False]
    assert table.rows(lambda name: True, Kind.RUNTIME, of=np.array([2, 0])).tolist() == [True, False]
