"""The table of evaluations: which of them count, what its columns are called, and its place."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from noisin.experiments import evaluated
from noisin.experiments.collection import collect
from noisin.experiments.formats import Sheet
from noisin.experiments.group import tasks
from noisin.experiments.report import page
from noisin.tasks.unit import NATS_PER_FRAME
from noisin.training import evaluations
from tests.experiments.records import write_run

CACHE = {"window": 500, "theta": 0.6, "lambda": 0.1}


def evaluate(folder: Path, perplexity: float, split: str = "test", **used: Any) -> None:
    line = {"split": split, "method": "exact", "weights": "raw", "checkpoint": "best", "epoch": 2}
    line |= {"nats": math.log(perplexity), "count": 1, "seconds": 1.0, "temperature": 1.0}
    evaluations.add(folder, line | used)


def sheet(folder: Path) -> Sheet | None:
    (task,) = tasks(collect(folder))
    return evaluated.sheet(task, "A title")


def columns(folder: Path) -> dict[str, tuple[str, ...]]:
    """The entries of each column by its heading."""
    found = sheet(folder)
    assert found is not None
    return dict(zip(found.heads, zip(*found.rows, strict=True), strict=True))


def test_nothing_was_evaluated(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    assert sheet(tmp_path) is None
    assert "by noisin evaluate" not in page.render(collect(tmp_path), tmp_path)


def test_a_row_is_the_mean_of_its_seeds(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / f"a-{seed}", seed=seed)
        evaluate(tmp_path / f"a-{seed}", 60.0 + 2 * seed, cache=CACHE)
    write_run(tmp_path / "noisy", noise={"gamma": 0.5})
    evaluate(tmp_path / "noisy", 65.0, "valid", cache=CACHE)
    evaluate(tmp_path / "noisy", 59.0, cache=CACHE, dynamic={"segment": 5})
    write_run(tmp_path / "not", noise={"gamma": 1.0})
    assert columns(tmp_path) == {
        "noise and other settings": ("gaussian γ 0.5", "no noise"),
        "valid, cache": ("65.0", "–"),
        "test, cache": ("–", "63.0 ± 1.4"),
        "test, cache + dynamic": ("59.0", "–"),
    }


def test_where_some_seeds_were_not_evaluated_it_says_so(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        write_run(tmp_path / f"a-{seed}", seed=seed)
    evaluate(tmp_path / "a-1", 60.0, cache=CACHE)
    evaluate(tmp_path / "a-2", 64.0, cache=CACHE)
    assert columns(tmp_path)["test, cache"] == ("62.0 ± 2.8 (2 of 3 seeds)",)


def test_the_newest_of_the_same_settings_counts(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    evaluate(tmp_path / "a", 64.0, cache=CACHE, seed=1)
    evaluate(tmp_path / "a", 63.0, cache=CACHE, seed=2)
    assert columns(tmp_path)["test, cache"] == ("63.0",)
    evaluate(tmp_path / "a", 61.0, cache=CACHE | {"window": 2000})
    found = columns(tmp_path)
    assert found["test, cache (cache.window 500)"] == ("63.0",)
    assert found["test, cache (cache.window 2000)"] == ("61.0",)


def test_only_the_best_weights_count(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    evaluate(tmp_path / "a", 60.0, cache=CACHE, epoch=1)
    evaluate(tmp_path / "a", 60.0, cache=CACHE, weights="averaged")
    evaluate(tmp_path / "a", 60.0, cache=CACHE, checkpoint="last")
    assert sheet(tmp_path) is None


def test_the_columns_are_named_and_in_order(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    folder = tmp_path / "a"
    evaluate(folder, 50.0, method="iwae", K=128)
    evaluate(folder, 51.0, method="iwae", K=16)
    evaluate(folder, 52.0, method="monte-carlo", K=10, masks="pass", power=1.0)
    evaluate(folder, 53.0, method="monte-carlo", K=10, masks="window", power=1.0)
    evaluate(folder, 54.0, unknown=0.1)
    evaluate(folder, 55.0, dynamic={"segment": 5})
    evaluate(folder, 56.0, temperature=1.1)
    evaluate(folder, 57.0, temperature=1.1, cache=CACHE)
    evaluate(folder, 58.0, calibration={"error": 0.0213})
    evaluate(folder, 59.0, "valid")
    found = columns(tmp_path)
    assert list(found)[1:] == [
        "valid, static",
        "test, static",
        "test, calibration error, %",
        "test, temperature 1.1",
        "test, cache, temperature 1.1",
        "test, dynamic",
        "test, 0.1 of the inputs unknown",
        "test, iwae 16",
        "test, iwae 128",
        "test, monte-carlo 10 (masks pass)",
        "test, monte-carlo 10 (masks window)",
    ]
    assert found["test, calibration error, %"] == ("2.13",)


def test_a_later_score_does_not_hide_a_calibration(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    evaluate(tmp_path / "a", 58.0, calibration={"error": 0.02})
    evaluate(tmp_path / "a", 57.0)
    found = columns(tmp_path)
    assert (found["test, static"], found["test, calibration error, %"]) == (("57.0",), ("2.00",))


def test_what_was_searched_is_one_column(tmp_path: Path) -> None:
    """Each seed has found its own settings; one that was given still distinguishes."""
    for seed, theta in ((1, 0.3), (2, 0.8)):
        write_run(tmp_path / f"a-{seed}", seed=seed)
        trials = [{"cache": CACHE | {"theta": value}, "temperature": t, "nats": 4.0}
                  for value, t in ((0.6, 1.0), (theta, 1.1))]  # fmt: skip
        used = {"cache": CACHE | {"theta": theta}, "tuned": {"trials": trials}}
        evaluate(tmp_path / f"a-{seed}", 60.0, temperature=1.0 + seed / 10, **used)
        used["cache"] = CACHE | {"theta": theta, "window": 50}
        evaluate(tmp_path / f"a-{seed}", 61.0, temperature=1.1, **used)
    found = columns(tmp_path)
    assert found["test, cache, tuned (cache.window 500)"] == ("60.0 ± 0.0",)
    assert found["test, cache, tuned (cache.window 50)"] == ("61.0 ± 0.0",)


def test_a_searched_temperature(tmp_path: Path) -> None:
    for seed, temperature in ((1, 1.0), (2, 1.1)):
        write_run(tmp_path / f"a-{seed}", seed=seed)
        trials = [{"temperature": t, "nats": 4.0} for t in (1.0, 1.05, 1.1)]
        tuned = {"trials": trials}
        evaluate(tmp_path / f"a-{seed}", 60.0, temperature=temperature, tuned=tuned)
    assert columns(tmp_path)["test, temperature, tuned"] == ("60.0 ± 0.0",)


def test_the_unit_is_that_of_the_task(tmp_path: Path) -> None:
    write_run(tmp_path / "a", (5.0, 4.0, 4.5), unit=NATS_PER_FRAME)
    evaluate(tmp_path / "a", 1.0, method="elbo", K=1, nats=-3.25)
    evaluate(tmp_path / "a", 1.0, method="iwae", K=16, nats=None)
    found = columns(tmp_path)
    assert (found["test, elbo 1"], found["test, iwae 16"]) == (("−3.250",), ("inf",))
    shown = page.render(collect(tmp_path), tmp_path)
    assert re.search(r"<caption[^>]*>Nats per frame of [^<]* by noisin evaluate</caption>", shown)


def test_the_report_has_the_table_of_each_task(tmp_path: Path) -> None:
    for name in ("ptb", "wikitext-2"):
        write_run(tmp_path / name, data={"name": name})
    evaluate(tmp_path / "ptb", 61.3, cache=CACHE)
    shown = page.render(collect(tmp_path), tmp_path)
    assert shown.count("by noisin evaluate</caption>") == 1
    assert '<th scope="col" class="number">test, cache</th>' in shown
    assert '<td class="number">61.3</td>' in shown


def test_many_rows_are_folded_away(tmp_path: Path) -> None:
    for i in range(page.MOST_ROWS + 2):
        write_run(tmp_path / f"{i}", noise={"gamma": 0.1 * (i + 1)})
        evaluate(tmp_path / f"{i}", 60.0, cache=CACHE)
    shown = page.render(collect(tmp_path), tmp_path)
    assert shown.count("<summary>2 more</summary>") == 2
    assert len(re.findall(r'<td class="number">60\.0</td>', shown)) == page.MOST_ROWS + 2


def test_damaged_evaluations_are_named_and_the_run_is_shown(tmp_path: Path) -> None:
    write_run(tmp_path / "good")
    (tmp_path / "good" / evaluations.NAME).write_text("nonsense\n")
    shown = page.render(collect(tmp_path), tmp_path)
    assert "1 record cannot be used" in shown
    assert "evaluations.jsonl is damaged: line 1" in shown
    assert "66.5" in shown, "its score on test"


def test_a_setting_of_any_kind_breaks_nothing(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    for strange in ([1, {"x": 2}], "<b>", None, True):
        evaluate(tmp_path / "a", 60.0, masks=strange, cache={"theta": strange}, tuned=strange)
        evaluate(tmp_path / "a", 60.0, tuned={"trials": [strange, {"cache": strange}]})
    assert "<b>" not in page.render(collect(tmp_path), tmp_path)
