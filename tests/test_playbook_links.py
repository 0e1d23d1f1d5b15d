"""The playbook can be walked: every link leads somewhere, every page is reached, every signal exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from xpu_triage.catalogue import CATALOGUE

ROOT = Path(__file__).parents[1]
PLAYBOOK = ROOT / "playbook"
PAGES = PLAYBOOK / "fingerprints"

IDS = (
    "cpu-fallback", "implicit-sync", "launch-bound", "host-bound", "kernel-bound", "bandwidth-bound",
    "prefill-starves-decode", "prefill-too-long", "kv-pressure", "queueing-idle-device", "tokenizer-cpu",
    "network-frontend", "comm-bound", "warmup-compile", "throttling", "wrong-backend", "no-fault",
)
SECTIONS = ("Symptom", "What the evidence shows", "The trap", "Settle it", "Fix", "Prove it fixed", "Cases")

MACHINE_PATH = re.compile(r"(?<![\w.-])(/(?:work|root|home|Users)/\S+|[A-Z]:\\Users\S*)")
_SIGNAL = re.compile(r"(?<![\w./:=,-])([a-z]+)\.([a-z][a-z0-9_]*)(?![\w.(/])")
_FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[`~]*[ \t]*$", re.M | re.S)
_SPAN = re.compile(r"(`+)(.+?)\1", re.S)
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]^]+\]:\s*<?(\S+?)>?\s*$", re.M)
_ATTRIBUTE = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"", re.I)
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.+?)\s*#*\s*$", re.M)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.I)


def markdown(path: Path) -> str:
    """A page without its front matter; of a notebook, its Markdown cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(r"\A---\n.*?^---\n", "", text, count=1, flags=re.M | re.S)


def prose(text: str) -> str:
    """Without fenced code, where neither links nor headings count."""
    return _FENCE.sub("", text)


def links(text: str) -> list[str]:
    """Targets of inline links, images, reference definitions and HTML attributes, outside code."""
    text = _SPAN.sub("", prose(text))
    return [found for pattern in (_LINK, _DEFINITION, _ATTRIBUTE) for found in pattern.findall(text)]


def anchors(text: str) -> set[str]:
    """The ids that GitHub gives to the headings of a page."""
    seen: dict[str, int] = {}
    out = set()
    for heading in _HEADING.findall(prose(text)):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        out.add(f"{slug}-{count}" if count else slug)
    return out


def targets(path: Path) -> Iterator[tuple[str, Path, str]]:
    """The relative links of a page: as written, the file they mean, the anchor in it."""
    for link in links(markdown(path)):
        if not _SCHEME.match(link):
            file, _, anchor = link.partition("#")
            yield link, (path.parent / unquote(file)).resolve() if file else path.resolve(), unquote(anchor)


def broken(path: Path, root: Path) -> list[str]:
    """What is wrong with a page's relative links, one line each."""
    out = []
    for link, file, anchor in targets(path):
        if link.startswith("/") or not file.is_relative_to(root.resolve()):
            out.append(f"{link}: leaves the repository")
        elif not file.exists():
            out.append(f"{link}: no such file")
        elif anchor and file.suffix in {".md", ".ipynb"} and anchor not in anchors(markdown(file)):
            out.append(f"{link}: no such heading")
    return out


def rule(page: Path) -> dict[str, object]:
    """The front matter of a page."""
    return dict(yaml.safe_load(page.read_text(encoding="utf-8").split("\n---\n")[0]))


def signals(text: str) -> set[str]:
    """What looks like a signal in inline code: `group.name` with a group of the catalogue."""
    groups = {name.partition(".")[0] for name in CATALOGUE}
    spans = (span for _, span in _SPAN.findall(prose(text)))
    return {m[0] for span in spans for m in _SIGNAL.finditer(span) if m[1] in groups}


DOCUMENTS = sorted({
    *PLAYBOOK.rglob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb"),
    *(path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md") if path.exists()),
})
every_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
every_page = pytest.mark.parametrize("page", [PAGES / f"{id_}.md" for id_ in IDS], ids=lambda p: p.stem)


def test_headings_get_the_ids_that_github_gives_them():
    text = ("# A `code` span, and [a link](x.md)!\n## Step 1: utilization\n## Step 1: utilization\n"
            "### Größe_n & c.\n```\n# not a heading\n```\n## TTFT — p99 ##\n")
    assert anchors(text) == {"a-code-span-and-a-link", "step-1-utilization", "step-1-utilization-1",
                             "größe_n--c", "ttft--p99"}


def test_links_are_found_in_every_form_and_not_in_code():
    text = ('[a](one.md) ![b](two.png "title") <img src="three.svg"> [c][r]\n\n[r]: four.md#x\n\n'
            "`[no](code.md)`\n```\n[no](fence.md)\n```\n[w](https://example.org)")
    assert sorted(links(text)) == ["four.md#x", "https://example.org", "one.md", "three.svg", "two.png"]


def test_a_broken_link_is_told_apart_from_a_good_one(tmp_path):
    (tmp_path / "there.md").write_text("---\nid: x\n---\n# Here\n")
    page = tmp_path / "page.md"
    page.write_text("# Top\n[1](there.md#here) [2](#top) [3](gone.md) [4](there.md#away) "
                    "[5](../out.md) [6](/abs.md)")
    assert broken(page, tmp_path) == ["gone.md: no such file", "there.md#away: no such heading",
                                      "../out.md: leaves the repository", "/abs.md: leaves the repository"]


def test_a_signal_is_recognised_by_its_group_and_only_in_inline_code():
    text = ("`device.busy_fraction`, `serving.running: 0`, `step.nonsense`; not step.other, `torch.npu.foo`, "
            "`--query-gpu=power.draw`\n```\nhost.fence\n```\n")
    assert signals(text) == {"device.busy_fraction", "serving.running", "step.nonsense"}


@every_document
def test_every_relative_link_resolves(path):
    assert broken(path, ROOT) == []


@every_document
def test_every_signal_named_is_in_the_catalogue(path):
    assert sorted(signals(markdown(path)) - CATALOGUE.keys()) == []


@every_document
def test_no_document_mentions_a_path_of_somebodys_machine(path):
    assert MACHINE_PATH.findall(markdown(path)) == []


@every_page
def test_every_fingerprint_has_a_page_with_all_sections_in_order(page):
    text = prose(markdown(page)).strip()
    assert text.splitlines()[0] == f"# {rule(page)['title']}", "the page is called what the rule calls it"
    assert tuple(re.findall(r"^## (.+)$", text, re.M)) == SECTIONS
    bodies = re.split(r"^## .+$", markdown(page), flags=re.M)[1:]
    assert all(body.strip() for body in bodies), "no section is empty"


@every_page
def test_the_trap_links_every_look_alike_of_the_rule(page):
    trap = markdown(page).partition("\n## The trap\n")[2].partition("\n## ")[0]
    linked = {Path(link).stem for link in links(trap) if link.endswith(".md")}
    assert set(rule(page)["look_alikes"]) - linked == set()


@every_page
def test_every_page_says_what_kind_of_ratio_the_repair_gives(page):
    proof = markdown(page).partition("\n## Prove it fixed\n")[2].partition("\n## ")[0]
    assert re.search(r"\*\*(recovery|gain)\*\*", proof)


def test_the_folder_holds_these_fingerprints_and_no_other():
    assert {path.stem for path in PAGES.glob("*.md")} == set(IDS)


def test_the_tree_names_every_fingerprint():
    tree = _FENCE.search(markdown(PLAYBOOK / "README.md"))
    assert tree is not None
    assert {id_ for id_ in IDS if not re.search(rf"(?<![\w-]){id_}(?![\w-])", tree[0])} == set()


def test_every_page_of_the_playbook_is_reached_from_the_tree():
    reached, todo = set(), [(PLAYBOOK / "README.md").resolve()]
    while todo:
        page = todo.pop()
        if page not in reached and page.suffix == ".md" and page.exists():
            reached.add(page)
            todo += [file for _, file, _ in targets(page)]
    assert {path.resolve() for path in PLAYBOOK.rglob("*.md")} - reached == set()


def test_every_signal_of_the_catalogue_is_used_somewhere_in_the_playbook():
    text = "\n".join(path.read_text(encoding="utf-8") for path in PLAYBOOK.rglob("*.md"))
    assert CATALOGUE, "the catalogue is filled"
    assert [name for name in CATALOGUE if not re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text)] == []
