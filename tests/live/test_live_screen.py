"""Figures come from the folder's files, each read again only where it changed, and looking has a price limit."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.live import Live

from live_servers import METRICS
from xpu_triage.live import screen
from xpu_triage.live.folder import Folder

SMI = "timestamp, index, utilization.gpu [%]\n"


def scrape(second: int, tokens: int) -> str:
    return f"# scraped 2026-11-30T06:20:{second:02d}.000Z\n" + METRICS.decode().replace("} 100.0", f"}} {tokens}.0")


def row(second: int, percent: int) -> str:
    return f"2026/11/30 06:20:{second:02d}.000, 0, {percent} %\n"


def shown(figures) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(screen.picture(figures.measured, 3.0, 30.0, lambda text: text))
    return console.export_text()


def test_the_first_picture_says_what_each_step_waits_for(tmp_path):
    text = shown(screen.Figures(Folder(tmp_path)))
    assert "recording, 3 of 30 s" in text
    assert text.count("waiting for") == 3


def test_step_one_comes_with_samples_and_step_two_with_two_scrapes(tmp_path):
    folder = Folder(tmp_path)
    figures = screen.Figures(folder)
    for second in range(31, 35):
        folder.append("device/nvidia-smi.csv", row(second, 10 * (second - 30)), header=SMI)
    assert figures.look(1.0)
    values = {signal.name: signal.value for signal in figures.measured.signals}
    assert round(values["device.utilization_fraction"], 6) == 0.25  # the mean of 10, 20, 30 and 40 %
    assert "serving.decode_tokens_per_s" not in values
    folder.write("metrics/0000.prom", scrape(31, 100))
    folder.write("metrics/0001.prom", scrape(33, 300))
    assert figures.look(9.0)
    values = {signal.name: signal.value for signal in figures.measured.signals}
    assert values["serving.decode_tokens_per_s"] == 100.0  # 200 tokens in 2 s
    assert "device.utilization_fraction" in shown(figures)


def test_nothing_is_read_again_that_did_not_change_and_nothing_too_often(tmp_path):
    folder = Folder(tmp_path)
    figures = screen.Figures(folder)
    folder.write("metrics/0000.prom", scrape(31, 100))
    assert figures.look(1.0)
    folder.write("metrics/0001.prom", scrape(33, 300))
    assert not figures.look(1.5)
    assert figures.look(6.0)
    assert not figures.look(12.0)


def test_the_last_scrapes_are_looked_at_and_not_all_of_a_long_recording(tmp_path):
    folder = Folder(tmp_path)
    figures = screen.Figures(folder)
    tokens = (0, 5_000, 10_000, 10_900, 10_100, 10_200, 10_400)
    for number, so_far in enumerate(tokens):
        folder.write(f"metrics/{number:04d}.prom", scrape(31 + number, so_far))
    figures.look(1.0)
    values = {signal.name: signal.value for signal in figures.measured.signals}
    assert values["serving.decode_tokens_per_s"] == 100.0  # 10,000 to 10,400 in 4 s


def test_a_file_that_no_reader_reads_does_no_harm(tmp_path):
    folder = Folder(tmp_path)
    folder.write("device/x.txt", "\x00\x01 nothing")
    figures = screen.Figures(folder)
    figures.look(1.0)
    assert figures.measured.signals == ()


class Drawn(Live):
    """What would be on the terminal after each drawing."""

    def __init__(self) -> None:
        super().__init__(auto_refresh=False)
        self.pictures: list[str] = []

    def update(self, renderable, *, refresh=False) -> None:
        assert refresh
        console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        console.print(renderable)
        self.pictures.append(" ".join(console.export_text().split()))


def test_the_seconds_run_and_a_failure_shows_at_once_though_no_figure_ever_comes(tmp_path):
    drawn = Drawn()
    panel = screen.Panel(drawn, screen.Figures(Folder(tmp_path)), lambda text: text.replace("secret", "…"), 30.0)
    assert "recording, 0 of 30 s" in drawn.pictures[-1]
    panel.tell("server: http://secret:1/metrics refuses the connection: nothing listens there")
    panel.tick(0.5)
    assert "server: http://…:1/metrics refuses the connection: nothing listens there" in drawn.pictures[-1]
    for gone_s in (1.0, 1.5, 2.0, 2.5, 3.0):
        panel.tick(gone_s)
    assert len(drawn.pictures) == 5  # not at 1.5 and 2.5: nothing changed
    assert "recording, 3 of 30 s" in drawn.pictures[-1]
    assert "refuses the connection" in drawn.pictures[-1]
    assert panel.said == set()  # the picture goes: it is to be printed at the end


def test_where_there_is_no_terminal_a_failure_is_one_line_at_once(tmp_path, capsys):
    plain = screen.Plain(screen.Figures(Folder(tmp_path)), lambda text: text, to_stderr=False)
    line = "server: http://127.0.0.1:1/metrics refuses the connection: nothing listens there, " + "and more " * 20
    plain.tell(line)
    assert capsys.readouterr().err.splitlines() == [f"watch: {line}"]
    assert plain.said == {line}


@pytest.mark.parametrize("columns", ["60", "80"])
def test_the_line_of_a_step_wraps_to_the_columns_that_are_asked_for(tmp_path, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    folder = Folder(tmp_path)
    plain = screen.Plain(screen.Figures(folder), lambda text: text, to_stderr=False)
    for second in (31, 33):
        folder.write(f"metrics/{second:04d}.prom", scrape(second, 100 * second))
    plain.tick(1.0)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= int(columns)
    assert all(line.startswith(" " * 9) for line in lines[1:])


def test_where_there_is_no_terminal_each_step_is_said_once(tmp_path, capsys):
    folder = Folder(tmp_path)
    plain = screen.Plain(screen.Figures(folder), lambda text: text, to_stderr=False)
    for second in (31, 33, 35):
        folder.write(f"metrics/{second:04d}.prom", scrape(second, 100 * second))
        plain.tick(float(second))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(" 31.0 s  2 step time: serving.running 4")
