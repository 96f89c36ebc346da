"""`unpooled doctor`: what is right, missing and wrong with an installation, a link and a node."""

import datetime
import json
import socket

import pytest

from unpooled.cli import main
from unpooled.commands import doctor


def told(capsys, *words):
    """(exit code, {what: marks}) of a doctor's round."""
    code = main(["doctor", "--json", *map(str, words)])
    findings = json.loads(capsys.readouterr().out)["findings"]
    marks: dict[str, list[str]] = {}
    for finding in findings:
        marks.setdefault(finding["what"], []).append(finding["mark"])
    return code, marks


def test_a_good_installation_has_no_problems(tmp_path, capsys):
    code, marks = told(capsys, "--link", tmp_path)
    assert code == 0
    assert marks["numpy"] == marks["python"] == marks["clock"] == [doctor.OK]
    assert {"torch", "flwr", "GPU", "disk", "port"} <= marks.keys()


def test_the_text_is_one_line_per_finding(tmp_path, capsys):
    assert main(["doctor", "--link", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "no problems"
    assert all(": " in line for line in lines[:-1])


def test_a_missing_package_is_told_with_its_remedy():
    found = doctor.package("no-such-package", doctor.NONE, "pip install it")
    assert found == (doctor.NONE, "no-such-package", "not installed: pip install it")


def test_a_port_in_use_is_told():
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        number = door.getsockname()[1]
        assert doctor.port(number).mark == doctor.WARN
        assert doctor.reachable("link", f"127.0.0.1:{number}", "", if_not=doctor.BAD).mark == doctor.OK
    assert doctor.port(number).mark == doctor.OK
    assert doctor.reachable("link", f"127.0.0.1:{number}", "", if_not=doctor.BAD).mark == doctor.BAD


@pytest.mark.parametrize(("days", "mark"), [(200, doctor.OK), (10, doctor.WARN)])
def test_dates_of_a_certificate(days, mark, tmp_path):
    keys = pytest.importorskip("unpooled.remote.keys")
    keys.make_authority(tmp_path, ["127.0.0.1"], datetime.timedelta(days=days))
    assert doctor.certificate(tmp_path / "server.crt", "renew it").mark == mark


def test_an_expired_certificate_is_a_problem(tmp_path, monkeypatch):
    keys = pytest.importorskip("unpooled.remote.keys")
    keys.make_authority(tmp_path, ["127.0.0.1"], datetime.timedelta(days=5))

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.now(tz) + datetime.timedelta(days=6)

    monkeypatch.setattr(doctor, "datetime", Later)
    found = doctor.certificate(tmp_path / "server.crt", "renew it")
    assert found.mark == doctor.BAD
    assert found.text.endswith("renew it")


def test_a_node_without_its_certificate_is_a_problem(tmp_path, capsys):
    pytest.importorskip("cryptography")
    assert main(["node", "init", str(tmp_path / "basel"), "--on", "127.0.0.1:1"]) == 0
    capsys.readouterr()
    code, marks = told(capsys, "--link", tmp_path, "--node", tmp_path / "basel" / "node.toml")
    assert code == 1
    assert marks["node"] == [doctor.OK]
    assert marks["secret"] == [doctor.OK]
    assert marks["certificate"] == [doctor.BAD]
    assert marks["coordinator"] == [doctor.BAD]


def test_a_secret_that_others_can_read_is_told(tmp_path):
    path = tmp_path / "node.key"
    path.write_text("x")
    path.chmod(0o644)
    assert doctor.secret(path).mark == doctor.WARN
    path.chmod(0o600)
    assert doctor.secret(path).mark == doctor.OK
