"""``gpumatch route-sim`` as users run it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gpumatch import cli
from gpumatch.cli import route_sim
from gpumatch.cli.route_pictures import Columns, curves_of, draw_curves
from gpumatch.routing.overlays.topology import Topology
from gpumatch.routing.simulator import experiments
from gpumatch.routing.simulator.protocols import Costs
from gpumatch.routing.simulator.simulation import simulate
from gpumatch.routing.simulator.traffic import Workload

SMALL = ["route-sim", "--brokers", "20", "--degree", "3", "--events", "20", "--cluster-size", "5"]


def test_all_protocols(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, picture = tmp_path / "a.json", tmp_path / "a.png"
    assert cli.main([*SMALL, "--seeds", "2", "--json", str(out), "--plot", str(picture)]) == 0
    text = capsys.readouterr().out
    for part in ("20 brokers, random, degree 3", "d-dbr", "merc", "fbr", "latency", "delivered", "transit-stub"):
        assert part in text
    told = json.loads(out.read_text())
    assert told["asked"]["brokers"] == 20
    assert [len(told["found"][protocol]) for protocol in ("d-dbr", "merc", "fbr")] == [2, 2, 2]
    assert told["found"]["fbr"][0]["mean_list"] is None
    assert told["found"]["d-dbr"][0]["delivered"] == 1
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("graph", ["random", "waxman", "transit-stub"])
def test_graphs_and_failures(graph: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.json"
    losses = ["--links-lost", "0.5", "--fail-at", "0", "--detection", "0", "--json", str(out)]
    assert cli.main([*SMALL, "--graph", graph, *losses]) == 0
    capsys.readouterr()
    found = json.loads(out.read_text())["found"]
    assert 0 < found["fbr"][0]["delivered"] < found["d-dbr"][0]["delivered"] <= 1
    assert found["fbr"][0]["lost"] > 0


def test_same_seed_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for seed in ("5", "5", "6"):
        assert cli.main([*SMALL, "--protocol", "d-dbr", "--brokers-lost", "0.2", "--seed", seed]) == 0
        answers.append(capsys.readouterr().out.replace(f"seed {seed}", ""))
    assert answers[0] == answers[1] != answers[2]
    assert "merc" not in answers[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--degree", "0.5"], "no connected graph"),
        (["--degree", "30"], "no connected graph"),
        (["--interested", "2"], "--interested: expected a share from 0 to 1 (0.2 is 20 %), found 2"),
        (["--rate", "0"], "above 0"),
        (["--rate", "nan"], "above 0"),
        (["--rate", "1e-9"], "nanoseconds"),
        (["--links-lost", "1.5"], "--links-lost: expected a share from 0 to 1 (0.2 is 20 %), found 1.5"),
        (["--brokers-lost", "-1"], "--brokers-lost: expected a share"),
        (["--links-lost", "nan"], "--links-lost: expected a share"),
        (["--fail-at", "3"], "--fail-at"),
        (["--detection", "-5"], "--detection"),
        (["--seed", "-1"], "--seed"),
        (["--cluster-size", "99"], "--cluster-size: expected 1 to 20 (all --brokers), found 99"),
        (["--json", "-"], "--json: expected the name of a file, found '-'"),
        (["--brokers", "99999"], "at most 5,000"),
    ],
)
def test_impossible_values(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SMALL, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_picture_of_no_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SMALL, "--plot", str(tmp_path / "a.doc")]) == 2
    assert "ends in one of" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["scipy", "networkx"])
def test_the_extra_is_named(missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> None:
        raise ModuleNotFoundError(f"No module named '{missing}'", name=f"{missing}.sparse")

    monkeypatch.setattr(route_sim, "_simulate", fail)
    assert cli.main(SMALL) == 2
    assert "pip install 'gpumatch[routing]'" in capsys.readouterr().err


def test_other_missing_modules_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'other'", name="other")

    monkeypatch.setattr(route_sim, "_simulate", fail)
    with pytest.raises(ModuleNotFoundError, match="other"):
        cli.main(SMALL)


def test_thesis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole command on canned figures: what it computes is tested with the experiments."""
    values = {figure.key: figure.paper * 1.1 for figure in experiments.FIGURES} | {experiments.BESIDE[0]: 2.75}
    curve = experiments.Curves("a", "x", "y", [1.0, 2.0], {"D-DBR": [1.0, 2.0]})
    monkeypatch.setattr(experiments, "run_seed", lambda seed: values)
    monkeypatch.setattr(experiments, "run_waxman", lambda seed: {"d-dbr-700": 3.9})
    monkeypatch.setattr(experiments, "list_curves", lambda seed: [curve, curve])
    monkeypatch.setattr(experiments, "failure_curves", lambda seeds: [curve, curve])
    monkeypatch.setattr(experiments, "latency_curves", lambda seed, done: curve)
    out, picture = tmp_path / "a.json", tmp_path / "a.svg"
    assert cli.main(["route-sim", "--thesis", "--seeds", "3", "--json", str(out), "--plot", str(picture)]) == 0
    text = capsys.readouterr().out
    for part in ("+10.0%", "holds", "MaxDegree is not printed", "2.75", "3.90", "over 3 seeds"):
        assert part in text
    for figure in experiments.FIGURES:  # in one line each, in 80 columns
        assert f"│ {figure.key} " in text
        assert f"\n{figure.key}: {figure.what}" in text
    assert "…" not in text
    told = json.loads(out.read_text())
    assert told["seeds"] == [0, 1, 2]
    assert len(told["table"]) == len(experiments.FIGURES)
    assert len(told["curves"]) == 5
    assert "<svg" in picture.read_text()


def test_help_is_quick() -> None:
    """Building the parser loads nothing of overlays."""
    import subprocess

    code = "import sys, gpumatch.cli; gpumatch.cli._parser(); print('scipy' in sys.modules, 'networkx' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]


def test_the_thesis_takes_no_options_of_simulations(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["route-sim", "--thesis", "--brokers", "100", "--links-lost", "0.2", "--seed", "1"]) == 2
    assert "leave out --brokers, --links-lost\n" in capsys.readouterr().err


def test_nobody_is_interested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.json"
    assert cli.main([*SMALL, "--interested", "0", "--json", str(out), "--plot", str(tmp_path / "a.png")]) == 0
    capsys.readouterr()
    for several in json.loads(out.read_text())["found"].values():
        assert 0 < several[0]["busiest_share"] <= 1
        assert several[0]["delivered_with_path"] is None


def test_failures_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.json"
    assert cli.main([*SMALL, "--links-lost", "0.2", "--brokers-lost", "0.25", "--json", str(out)]) == 0
    text = capsys.readouterr().out
    assert "20% of the links and 25% of the brokers fail after 50% of the time, noticed within 100 ms" in text
    assert "of those with a path" in text
    assert "with a path: source and broker are up" in text
    d_dbr = json.loads(out.read_text())["found"]["d-dbr"][0]
    assert d_dbr["delivered"] < d_dbr["delivered_with_path"] == 1
    assert cli.main(SMALL) == 0
    assert "fail" not in capsys.readouterr().out.splitlines()[0]


def test_parts_of_the_picture(tmp_path: Path) -> None:
    """Latencies have a logarithmic axis if they are far apart; what is delivered is beside them."""
    line = Topology(3, [(0, 1), (1, 2)])
    work = Workload.random(3, 5, 100.0, 1.0, 1)
    slow, quick = (
        simulate(line, work, name, Costs(subscription=cost)) for name, cost in (("fbr", 10**6), ("d-dbr", 0))
    )
    latency, lists, delivered = curves_of([quick, slow])
    assert isinstance(latency, experiments.Curves)
    assert latency.log == "y"
    assert isinstance(lists, experiments.Curves)
    assert lists.log == ""
    assert isinstance(delivered, Columns)
    assert delivered.shares == {"d-dbr": [1, 1], "fbr": [1, 1]}
    alike = simulate(line, Workload([0], [0], [0, 1], [2]), costs=Costs())
    near = curves_of([alike, alike])[0]
    assert isinstance(near, experiments.Curves)
    assert near.log == ""
    draw_curves([latency, lists, delivered], tmp_path / "a.svg")
    assert "of those with a path" in (tmp_path / "a.svg").read_text()
