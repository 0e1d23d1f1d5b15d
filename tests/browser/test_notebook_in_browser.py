"""The triage notebook in JupyterLab and the report, both in a real headless browser."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SERVER_START_S, KERNEL_START_S, RUN_ALL_S = 300, 300, 600
"""Long: these only guard against waiting for ever."""
FIRST_PORT = 18_888
PICTURES = 4

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on the path (Debian: apt install chromium)"
)


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium, driven by Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def lab(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab on this machine alone, over a copy of the notebooks without outputs."""
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
    work = tmp_path_factory.mktemp("lab")
    _copy_without_outputs(root / "notebooks" / "00_triage.ipynb", work / "root")
    _settings(work)
    token = secrets.token_hex(16)
    with _server(work, token) as port:
        yield f"http://127.0.0.1:{port}/lab/tree/00_triage.ipynb?reset&token={token}"


def _copy_without_outputs(notebook: Path, folder: Path) -> None:
    folder.mkdir()
    content = json.loads(notebook.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    (folder / notebook.name).write_text(json.dumps(content), encoding="utf-8")


def _settings(work: Path) -> None:
    """All cells stay in the page, seen or not, so that they can be counted; and nothing is asked of the
    network."""
    for name, content in (("notebook-extension/tracker", '{"windowingMode": "none"}'),
                          ("apputils-extension/notification", '{"fetchNews": "false", "checkForUpdates": false}')):
        path = work / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@contextlib.contextmanager
def _server(work: Path, token: str) -> Iterator[int]:
    """JupyterLab as a process group of its own, ended by its id; the port that it took, the first free one."""
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(work / "config"),
        "JUPYTER_DATA_DIR": str(work / "data"),
        "JUPYTER_RUNTIME_DIR": str(work / "runtime"),
        "IPYTHONDIR": str(work / "ipython"),
        "JUPYTERLAB_SETTINGS_DIR": str(work / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(work / "workspaces"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={FIRST_PORT}",
        "--ServerApp.port_retries=100",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={work / 'root'}",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
    ]
    with open(work / "server.log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield _wait_for(process, work)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=20)


def _wait_for(process: subprocess.Popen[bytes], work: Path) -> int:
    """Until it answers; its port, as it wrote it down."""
    log, told = work / "server.log", work / "runtime" / f"jpserver-{process.pid}.json"
    end = time.monotonic() + SERVER_START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            pytest.fail(f"JupyterLab ended while it started:\n{log.read_text()[-2000:]}")
        try:
            port: int = json.loads(told.read_text())["port"]
            urllib.request.urlopen(f"http://127.0.0.1:{port}/login", timeout=10)
            return port
        except (OSError, ValueError):
            time.sleep(0.3)
    pytest.fail(f"JupyterLab did not answer in {SERVER_START_S} s:\n{log.read_text()[-2000:]}")


def test_run_all_in_jupyterlab_shows_the_verdict_and_the_pictures(browser, lab, tmp_path):
    page = browser.new_page(viewport={"width": 1500, "height": 4200})
    try:
        page.goto(lab, timeout=300_000)
        # the kernel's indicator is wrong on a cold server; the status bar is not
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=KERNEL_START_S * 1000)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        cells = page.locator(".jp-CodeCell")
        _until_all_ran(page, cells)
        shown = page.locator(".jp-OutputArea-output")
        text = " ".join(shown.all_inner_texts())
        assert "CONFIRMED" in text
        assert "cpu-fallback" in text
        assert "aten::exponential_" in text
        assert page.locator(".jp-OutputArea-output img").count() >= PICTURES
        assert page.locator('[data-mime-type="application/vnd.jupyter.stderr"]').count() == 0
    finally:
        picture = tmp_path / "jupyterlab.png"
        page.screenshot(path=picture)
        print(f"screenshot: {picture}")
        page.close()


def _until_all_ran(page, cells) -> None:
    end = time.monotonic() + RUN_ALL_S
    while time.monotonic() < end:
        prompts = [cell.locator(".jp-InputPrompt").first.inner_text() for cell in cells.all()]
        if prompts and all(prompt.strip("[]: ").isdigit() for prompt in prompts):
            return
        page.wait_for_timeout(500)
    pytest.fail(f"not all cells ran in {RUN_ALL_S} s: {prompts}")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from xpu_triage.notebook import incident
    from xpu_triage.report import write_report

    return write_report([incident("faulty.json.gz")], tmp_path_factory.mktemp("report") / "triage.html")


def opened_without_network(browser, path: Path, screenshot: Path) -> tuple[list[str], str, int, list[str]]:
    """(requests beside the file itself, visible text, pictures that have pixels, what the console said)."""
    context = browser.new_context(offline=True, viewport={"width": 1400, "height": 1000})
    asked: list[str] = []
    said: list[str] = []
    context.route(
        "**/*", lambda route: route.continue_() if route.request.url == path.as_uri() else route.abort()
    )
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    try:
        page.goto(path.as_uri(), wait_until="load")
        text = page.inner_text("body")
        pictures = page.evaluate("[...document.images].filter(image => image.naturalWidth > 100).length")
        page.screenshot(path=screenshot, full_page=True)
        print(f"screenshot: {screenshot}")
        outside = [url for url in asked if url != path.as_uri() and not url.startswith("data:")]
        return outside, text, pictures, said
    finally:
        context.close()


def test_the_report_opens_without_network_and_asks_for_nothing(browser, report, tmp_path):
    outside, text, pictures, said = opened_without_network(browser, report, tmp_path / "report.png")
    assert outside == []
    assert said == []
    assert "CONFIRMED" in text
    assert "cpu-fallback" in text
    assert "aten::exponential_" in text
    assert pictures >= PICTURES


def test_the_verdict_is_on_the_first_screen_of_the_report(browser, report):
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    try:
        page.goto(report.as_uri())
        box = page.get_by_text("CONFIRMED", exact=True).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 600
    finally:
        page.close()


HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\x1b[31m$\\frac{1}{2}$\nhttps://x.org"


def test_hostile_names_do_nothing_in_the_report(browser, tmp_path):
    """A trace whose operator is named like an attack: the name is shown as text, nothing runs, nothing is
    asked for."""
    from xpu_triage.report import write_report

    trace = tmp_path / "hostile.json"
    trace.write_text(json.dumps({"traceEvents": _hostile_events()}))
    page = write_report([str(trace)], tmp_path / "hostile.html")
    outside, text, _, said = opened_without_network(browser, page, tmp_path / "hostile.png")
    assert outside == []
    assert said == []
    assert "<img src=x onerror=alert(1)><script>" in text, "the name is shown, as text"
    assert "\x1b" not in page.read_text(encoding="utf-8")


def _hostile_events() -> list[dict[str, object]]:
    events: list[dict[str, object]] = []
    for i in range(8):
        t = i * 100_000
        events += [
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{i}",
                "pid": 1,
                "tid": 1,
                "ts": t,
                "dur": 99_000,
            },
            {"ph": "X", "cat": "cpu_op", "name": HOSTILE, "pid": 1, "tid": 1, "ts": t + 1000, "dur": 90_000},
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "pid": 1,
                "tid": 1,
                "ts": t + 92_000,
                "dur": 10,
                "args": {"correlation": i + 1},
            },
            {
                "ph": "X",
                "cat": "kernel",
                "name": HOSTILE,
                "pid": 0,
                "tid": 7,
                "ts": t + 92_020,
                "dur": 3000,
                "args": {"correlation": i + 1},
            },
        ]
    return events
