"""The pages: all there, consistent, every threshold with its source; a mistake is refused with its place."""

from __future__ import annotations

import time

import pytest
import yaml

from xpu_triage import fingerprints
from xpu_triage.errors import TriageError
from xpu_triage.fingerprints import STEPS

IDS = {"cpu-fallback", "implicit-sync", "launch-bound", "host-bound", "kernel-bound", "bandwidth-bound",
       "prefill-starves-decode", "prefill-too-long", "kv-pressure", "queueing-idle-device", "tokenizer-cpu",
       "network-frontend", "comm-bound", "warmup-compile", "throttling", "wrong-backend", "no-fault"}

PAGE = """---
id: some-fault
title: A fault for the tests
step: utilization
look_alikes: []
needs: [step.wall_ms | step.count]
share: device.busy_fraction
finding: [launching]
for:
  - {signal: step.wall_ms, comparison: ">=", threshold: 5, weight: 1, says: long, source: judgement}
against:
  - {signal: step.wall_ms, comparison: "<", threshold: 1, weight: 1, says: short, source: judgement, decisive: true}
confirm:
  measure: Look twice
  any_of:
    - {signal: step.count, comparison: ">=", threshold: 2, weight: 2, says: twice, source: judgement}
fix: Mend it
verify: >-
  Look
  again
---

# Body

Text.
"""


@pytest.fixture(scope="module")
def pages():
    return fingerprints.load()


def written(folder, text, name="some-fault.md"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_seventeen_fingerprints_are_there(pages):
    assert {page.id for page in pages} == IDS


def test_every_page_is_whole(pages):
    for page in pages:
        assert page.step in STEPS
        assert page.look_alikes
        assert page.fix
        assert page.verify
        assert page.confirm.measure
        assert page.confirm.any_of
        assert page.finding
        assert not page.body.startswith("---")


ONE_WAY = {
    # who has the first may take it for the second, and who has the second is not misled to the first
    ("wrong-backend", "launch-bound"): "a slow kernel at batch 1 looks like launching, not the reverse",
    ("warmup-compile", "host-bound"): "a compiler is host work; steady host work does not go away",
    ("kernel-bound", "cpu-fallback"): "said to be absent beside a busy device; a fallback leaves it idle",
    ("kernel-bound", "host-bound"): "said to be absent beside a busy device; host work leaves it idle",
    ("no-fault", "kernel-bound"): "a device at its limit looks like slow kernels; theirs asks for it",
    ("prefill-starves-decode", "kernel-bound"): "prefills fill the device; a slow kernel stalls nobody",
    ("prefill-starves-decode", "network-frontend"): "a stalled stream looks like the network; not the reverse",
    ("prefill-too-long", "wrong-backend"): "a long prefill may be a slow one; a slow one is slow if short",
}


def test_look_alikes_are_mutual_or_the_reason_is_said(pages):
    by_id = {page.id: page for page in pages}
    one_way = {(page.id, other) for page in pages for other in page.look_alikes
               if page.id not in by_id[other].look_alikes}
    assert one_way == set(ONE_WAY)


def test_every_threshold_has_a_source_and_words(pages):
    for page in pages:
        for rule in (*page.for_, *page.against, *page.confirm.any_of):
            assert len(rule.source) > 5, (page.id, rule.signal.text)
            assert rule.says, (page.id, rule.signal.text)


def test_only_what_speaks_against_can_be_decisive(pages):
    assert not any(rule.decisive for page in pages for rule in (*page.for_, *page.confirm.any_of))
    assert all(any(rule.decisive for rule in page.against) for page in pages)


def test_what_confirms_is_a_number(pages):
    assert all(rule.signal.kind == "number" for page in pages for rule in page.confirm.any_of)


def test_a_page_reads_into_its_parts(tmp_path):
    page = fingerprints.read(written(tmp_path, PAGE))
    assert (page.id, page.needs, page.finding) == ("some-fault", (("step.wall_ms", "step.count"),), ("launching",))
    assert page.verify == "Look again"
    assert page.body == "# Body\n\nText.\n"
    assert page.names == {"step.wall_ms", "step.count", "device.busy_fraction"}
    assert page.share_of({"device.busy_fraction": 0.25}) == 0.25
    assert page.share_of({}) is None


@pytest.mark.parametrize(("old", "new", "says"), [
    ("step.wall_ms, comparison", "step.wall_us, comparison", "for: 'step.wall_us' is not a signal"),
    ("device.busy_fraction", "device.busyness", "'device.busyness' is not a signal"),
    ("device.busy_fraction", "sync.site", "share 'sync.site' is not a number"),
    ("step.wall_ms | step.count", "step.wall_ms | steps", "'steps' is not a signal"),
    ("id: some-fault", "id: other-fault", "is not the file's name"),
    ("step: utilization", "step: one", "step 'one' is none of"),
    ("finding: [launching]", "finding: [lunching]", "finding 'lunching' is none of"),
    ("fix: Mend it\n", "", "'fix' is missing"),
    ("fix: Mend it", "fix: Mend it\nhint: none", "'hint' is not known"),
    ("fix: Mend it", "fix: Mend it\nfix: twice", "'fix' is given twice (line 18)"),
    ("  measure: Look twice\n", "", "confirm has two parts"),
    (", source: judgement}\nagainst", "}\nagainst", "for: a rule needs its source"),
    ("for:\n  - {", "for:\nx:\n  - {", "'x' is not known"),
    ("---\nid", "id", "no front matter"),
    ("---\n\n# Body", "\n# Body", "no front matter"),
    ("title: A", "title: [A", "not valid YAML"),
])
def test_a_page_with_a_mistake_is_refused_with_its_place(tmp_path, old, new, says):
    assert old in PAGE
    path = written(tmp_path, PAGE.replace(old, new, 1))
    with pytest.raises(TriageError) as refusal:
        fingerprints.read(path)
    assert says in str(refusal.value)
    assert str(refusal.value).startswith(str(path))


def test_a_look_alike_that_does_not_exist_is_refused(tmp_path):
    written(tmp_path, PAGE.replace("look_alikes: []", "look_alikes: [nobody]"))
    with pytest.raises(TriageError, match="there is no page 'nobody'"):
        fingerprints.load(tmp_path)


def test_loading_all_pages_takes_little_cpu(pages):
    """Less than YAML's loader in Python takes for their front matter alone: a fifth of it, so there is room for what a
    test adds, and none for a slow loader. The least of five: whatever else goes on in the process adds to some."""
    paths = [page.path for page in pages]
    heads = [fingerprints.split(path.read_text(), path)[0] for path in paths]

    def cpu_s(work):
        fingerprints.expressions.parse.cache_clear()
        before = time.process_time()
        work()
        return time.process_time() - before

    ours = min(cpu_s(lambda: [fingerprints.read(path) for path in paths]) for _ in range(5))
    assert ours < min(cpu_s(lambda: [yaml.load(head, yaml.SafeLoader) for head in heads]) for _ in range(5))
