"""`run`, `resume`, `report`, `predict`: a run lasts, bad input is one sentence, nothing is half-written."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import unpooled as up
from unpooled import config
from unpooled.cli import main
from unpooled.data import synthetic

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

CONFIG = """
[model]
name = "GaussianMixture"
n_components = 3
random_state = 1
tol = 0.0
max_iter = 30
personal_weights = true
[data]
path = "clients/*.csv"
"""


@pytest.fixture(name="study")
def study_(tmp_path):
    """A folder with four clients' csv files and a config."""
    (tmp_path / "clients").mkdir()
    for name, x in synthetic.mixture(800, 3, 4, clients=4, missing=0.1, random_state=0).clients.items():
        np.savetxt(tmp_path / "clients" / f"{name}.csv", x, delimiter=",", header="a,b,c,d", comments="")
    (tmp_path / "study.toml").write_text(CONFIG)
    return tmp_path


def unpooled(*args, **options):
    return subprocess.Popen([sys.executable, "-m", "unpooled.cli", *map(str, args)], **options)


def test_run_writes_a_folder_with_everything(study, capsys):
    assert main(["run", str(study / "study.toml"), "max_iter=5", "--out", str(study / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"run": str(study / "run")}
    for name in ("config.toml", "history.jsonl", "ledger.jsonl", "model", "checkpoints", "report.html", "summary.json"):
        assert (study / "run" / name).exists(), name
    assert len((study / "run" / "history.jsonl").read_text().splitlines()) == 5
    assert up.load(study / "run").n_iter_ == 5


def test_killed_at_any_moment_it_resumes_to_the_same_bits(study):
    assert main(["run", str(study / "study.toml"), "--out", str(study / "whole")]) == 0
    for i, rounds in enumerate((1, 18)):
        folder = study / f"killed{i}"
        process = unpooled("run", study / "study.toml", "--out", folder, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline and _rounds(folder) < rounds:
            time.sleep(0.002)
        process.kill()
        process.wait()
        assert main(["resume", str(folder)]) == 0
        assert (folder / "model" / "model.zip").read_bytes() == (study / "whole" / "model" / "model.zip").read_bytes()
        assert len((folder / "history.jsonl").read_text().splitlines()) == 30
        rows = [json.loads(line)["round"] for line in (folder / "ledger.jsonl").read_text().splitlines()]
        assert rows == sorted(set(rows))


def _rounds(folder):
    return max((int(p.stem) for p in (folder / "checkpoints").glob("[0-9]*.zip")), default=-1)


@pytest.mark.slow
def test_a_second_process_is_refused_and_ctrl_c_leaves_a_resumable_run_and_says_so(study, capsys):
    process = unpooled(
        "run", study / "study.toml", "max_iter=100000", "--out", study / "run", stderr=subprocess.PIPE, text=True
    )
    while _rounds(study / "run") < 3 and process.poll() is None:
        time.sleep(0.01)
    assert main(["resume", str(study / "run")]) == 1
    assert f"another process (pid {process.pid})" in capsys.readouterr().err
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"unpooled resume {study / 'run'}" in told


def test_a_finished_run_resumes_to_itself(study):
    main(["run", str(study / "study.toml"), "max_iter=3", "--out", str(study / "run")])
    before = (study / "run" / "model" / "model.zip").read_bytes()
    assert main(["resume", str(study / "run")]) == 0
    assert (study / "run" / "model" / "model.zip").read_bytes() == before


def test_other_data_under_a_run_are_refused(study, capsys):
    main(["run", str(study / "study.toml"), "max_iter=3", "--out", str(study / "run")])
    first = next((study / "clients").glob("*.csv"))
    first.write_text(first.read_text() + "1,2,3,4\n")
    assert main(["resume", str(study / "run")]) == 1
    assert "the data differ" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("n_component=3", "did you mean 'n_components'?"),
        ("model.name=GaussianMixtur", "did you mean 'GaussianMixture'?"),
        ("data.pth=x", "did you mean 'path'?"),
        ("covariance_type=ful", "use one of full"),
        ("n_components=0", "at least 1"),
        ("data.path=nowhere", "there is no file"),
        ("n_components", "write key=value"),
        ("tol=abc", "tol='abc' should be a number"),
        ("model.name=Local", "there is no model 'Local'"),
        ("data.path=3", "path=3 should be a string"),
        ("data.columns=a", "columns='a' should be a list"),
        ("federation.min_clients=x", "min_clients='x' should be a whole number"),
        ("nothing.key=3", "has a section or key 'nothing'"),
    ],
)
def test_a_typo_is_one_sentence(study, capsys, override, sentence):
    assert main(["run", str(study / "study.toml"), override, "--out", str(study / "run")]) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.strip().splitlines()) == 1


def test_a_typo_makes_no_folder(study):
    for override in ("tol=abc", "nothing.key=3", "data.path=nowhere"):
        main(["run", str(study / "study.toml"), override, "--out", str(study / "run")])
    assert not (study / "run").exists()


def test_a_run_that_never_began_can_be_started_anew_with_other_settings_and_data(study, capsys):
    first = next((study / "clients").glob("*.csv"))
    good = first.read_text()
    first.write_text(good.replace("\n", "\nhigh,1,2,3\n", 1))
    command = ["run", str(study / "study.toml"), "--out", str(study / "run")]
    assert main([*command, "n_components=999999"]) == 1
    assert "'high'" in capsys.readouterr().err
    first.write_text(good)
    assert main([*command, "n_components=999999"]) == 1
    assert main([*command, "max_iter=2"]) == 0
    assert up.load(study / "run").n_components == 3
    assert main(command) == 1
    assert "holds a run already" in capsys.readouterr().err


def test_a_resumed_run_that_never_began_takes_mended_data(study):
    command = ["run", str(study / "study.toml"), "max_iter=2", "n_components=999999", "--out", str(study / "run")]
    assert main(command) == 1
    config = study / "run" / "config.toml"
    config.write_text(config.read_text().replace("999999", "3"))
    first = next((study / "clients").glob("*.csv"))
    first.write_text(first.read_text() + "1,2,3,4\n")
    assert main(["resume", str(study / "run")]) == 0


def test_a_path_on_the_command_line_is_seen_from_where_it_is_typed(study, monkeypatch):
    monkeypatch.chdir(study)
    (study / "other").symlink_to(study / "clients")
    (study / "configs").mkdir()
    (study / "study.toml").rename(study / "configs" / "study.toml")
    command = ["run", "configs/study.toml", "data.path=other/*.csv", "max_iter=2", "--out", "deep/run"]
    assert main(command) == 0


def test_chosen_columns_are_the_features_and_others_may_hold_text(study):
    for path in (study / "clients").glob("*.csv"):
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([f"who,{head}", *(f"patient,{row}" for row in rows)]) + "\n")
    command = ["run", str(study / "study.toml"), "max_iter=2", 'data.columns=["c", "a"]', "--out", str(study / "run")]
    assert main(command) == 0
    assert up.load(study / "run").columns_ == ["c", "a"]


def test_a_table_of_options_survives_in_the_config(study):
    command = ["run", str(study / "study.toml"), 'solver_options={levels = 3, note = "a \\"b\\""}', "--out"]
    main([*command, str(study / "run")])  # whatever the solver says to it
    options = config.read(study / "run" / "config.toml")["model"]["solver_options"]
    assert options == {"levels": 3, "note": 'a "b"'}


def test_the_same_config_runs_in_process_and_over_a_link(study):
    command = ["run", str(study / "study.toml"), "max_iter=2", "federation.timeout=600", "--out", str(study / "run")]
    assert main(command) == 0


def test_a_used_folder_is_not_overwritten(study, capsys):
    for _ in range(2):
        code = main(["run", str(study / "study.toml"), "max_iter=2", "--out", str(study / "run")])
    assert code == 1
    assert "holds a run already" in capsys.readouterr().err


def test_a_full_disk_is_one_sentence_and_nothing_is_half_written(study, capsys):
    main(["run", str(study / "study.toml"), "max_iter=2", "--out", str(study / "run")])
    before = sorted(p.name for p in (study / "run").rglob("*"))
    arguments = ["run", str(study / "study.toml"), "max_iter=2", "--out", str(study / "full")]
    limit = (
        "import resource, signal; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from unpooled.cli import main; "
        f"raise SystemExit(main({arguments!r}))"
    )
    done = subprocess.run([sys.executable, "-c", limit], capture_output=True, text=True)
    assert done.returncode == 1
    assert "could not write" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list((study / "full").rglob(".*"))
    assert before == sorted(p.name for p in (study / "run").rglob("*"))


def test_a_disk_that_fills_up_in_a_run_is_told_with_the_way_to_go_on(study, capsys, monkeypatch):
    real, calls = os.fsync, iter(range(10**6))

    def filling(handle):
        if next(calls) > 20:
            raise OSError(28, "No space left on device")
        real(handle)

    folder = study / "run"
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", filling)
        assert main(["run", str(study / "study.toml"), "max_iter=8", "--out", str(folder)]) == 1
    told = capsys.readouterr().err
    assert "No space left on device; free some space" in told
    assert f"`unpooled resume {folder}` goes on from there" in told
    assert main(["resume", str(folder)]) == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a place that cannot be written")
def test_an_unwritable_place_is_one_sentence(study, capsys):
    assert main(["run", str(study / "study.toml"), "--out", "/dev/full/run"]) == 1
    assert "could not write" in capsys.readouterr().err


def test_predict_reads_columns_by_name_and_writes_csv(study, capsys):
    main(["run", str(study / "study.toml"), "max_iter=3", "--out", str(study / "run")])
    capsys.readouterr()
    x = np.random.default_rng(0).normal(size=(5, 4))
    np.savetxt(study / "new.csv", x[:, ::-1], delimiter=",", header="d,c,b,a", comments="")
    assert main(["predict", str(study / "run"), str(study / "new.csv"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    np.testing.assert_array_equal(told["prediction"], up.load(study / "run").predict(x))
    (study / "less.csv").write_text("a,b,c\n1,2,3\n")
    assert main(["predict", str(study / "run"), str(study / "less.csv")]) == 1
    assert "has no column 'd'" in capsys.readouterr().err


@pytest.fixture(name="finished")
def finished_(study, capsys):
    main(["run", str(study / "study.toml"), "max_iter=3", "--out", str(study / "run")])
    capsys.readouterr()
    return study


def test_a_file_without_rows_is_said_to_have_none(finished, capsys):
    (finished / "names.csv").write_text("a,b,c,d\n")
    assert main(["predict", str(finished / "run"), str(finished / "names.csv")]) == 1
    assert "names.csv has column names and no rows" in capsys.readouterr().err


def test_predictions_are_written_whole_or_not_at_all(finished, capsys):
    rows = next((finished / "clients").glob("*.csv"))
    assert main(["predict", str(finished / "run"), str(rows), "--out", str(finished / "new" / "out.csv")]) == 0
    lines = (finished / "new" / "out.csv").read_text().splitlines()
    assert lines[0] == "prediction,p0,p1,p2,log_density"
    assert len(lines) == len(rows.read_text().splitlines())
    (finished / "file").write_text("")
    assert main(["predict", str(finished / "run"), str(rows), "--out", str(finished / "file" / "out.csv")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_model_that_is_not_there_yet_is_one_sentence(finished, capsys):
    rows = str(next((finished / "clients").glob("*.csv")))
    (finished / "run" / "model" / "model.zip").unlink()
    assert main(["predict", str(finished / "run"), rows]) == 1
    assert f"`unpooled resume {finished / 'run'}`" in capsys.readouterr().err
    assert main(["predict", str(finished / "nowhere"), rows]) == 1
    assert "no fitted model" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a place that cannot be written")
def test_output_that_cannot_be_written_is_one_sentence(finished):
    rows = next((finished / "clients").glob("*.csv"))
    with open("/dev/full", "w") as full:
        process = unpooled("predict", finished / "run", rows, stdout=full, stderr=subprocess.PIPE, text=True)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert len(told.strip().splitlines()) == 1


def test_a_client_of_a_model_for_all_is_refused(tmp_path, capsys):
    (tmp_path / "all.csv").write_text("a,b,y\n1,2,3\n2,3,5\n3,5,8\n4,4,9\n")
    (tmp_path / "a.toml").write_text('[model]\nname = "BayesianRegression"\n[data]\npath = "all.csv"\nlabel = "y"\n')
    run = str(tmp_path / "run")
    assert main(["run", str(tmp_path / "a.toml"), "--out", run]) == 0
    assert "1 round\n" in capsys.readouterr().out
    assert main(["predict", run, str(tmp_path / "all.csv")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "prediction,std"
    assert main(["predict", run, str(tmp_path / "all.csv"), "--client", "all"]) == 1
    assert "leave --client out" in capsys.readouterr().err


def test_the_report_needs_no_network(study):
    main(["run", str(study / "study.toml"), "max_iter=3", "--out", str(study / "run")])
    page = (study / "run" / "report.html").read_text()
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    assert "default-src 'none'" in page
    for words in (
        "What was asked",
        "Who took part",
        "Missing values",
        "What left each client",
        "Who holds what",
    ):
        assert words in page


@pytest.mark.slow
def test_the_demo_makes_its_own_folder_anew_and_nobody_elses(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["demo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["difference"] < 1e-8
    (tmp_path / "demo" / "demo.toml").unlink()
    assert main(["demo"]) == 1
    assert "choose another folder with --out" in capsys.readouterr().err
    assert (tmp_path / "demo" / "report.html").exists()


def test_predict_names_infinite_cells_and_unknown_ids(finished, capsys):
    x = np.zeros((3, len(up.load(finished / "run").means_[0])))
    x[1, 0] = np.inf
    names = up.load(finished / "run").columns_ or [f"c{j}" for j in range(x.shape[1])]
    text = "\n".join([",".join(names), *(",".join(map(str, row)) for row in x)])
    (finished / "inf.csv").write_text(text)
    assert main(["predict", str(finished / "run"), str(finished / "inf.csv")]) == 1
    said = capsys.readouterr().err
    assert f"inf.csv holds infinite values in column {names[0]!r} (row 2): leave these cells empty" in said
    (finished / "inf.csv").write_text(text.replace("inf", "1"))
    assert main(["predict", str(finished / "run"), str(finished / "inf.csv"), "--id", "pid"]) == 1
    assert "--id pid is not a column of the file: known:" in capsys.readouterr().err
