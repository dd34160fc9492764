"""The user's pip and uv settings reach uv on a host; local-only settings are left out, and passwords do not leak."""

import os

import pytest

from deploy.send.packages import settings
from deploy.send.packages.requirements import Requirements, take_out_logins


@pytest.fixture
def home(tmp_path):
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/uv").mkdir()
    return tmp_path


def of(home, **variables):
    return settings.of_user({"PIP_CONFIG_FILE": str(home / ".config/pip/pip.conf"), **variables}, home)


def test_the_index_of_pip_becomes_that_of_uv(home):
    (home / ".config/pip/pip.conf").write_text(
        "[global]\nindex-url = https://me:sesame-1@index.example/simple\nproxy = http://proxy.example:8\n"
        "[install]\nextra-index-url =\n    https://one.example/simple\n    https://two.example/simple\n"
    )
    got = of(home).variables
    assert got["UV_DEFAULT_INDEX"] == got["PIP_INDEX_URL"] == "https://me:sesame-1@index.example/simple"
    assert got["UV_INDEX"] == "https://one.example/simple https://two.example/simple"
    assert got["HTTPS_PROXY"] == "http://proxy.example:8"


def test_uvs_settings_override_pips_and_variables_override_files(home):
    (home / ".config/pip/pip.conf").write_text("[global]\nindex-url = https://pip.example/simple\n")
    (home / ".config/uv/uv.toml").write_text('[[index]]\nurl = "https://uv.example/simple"\ndefault = true\n')
    assert of(home).variables["UV_DEFAULT_INDEX"] == "https://uv.example/simple"
    assert of(home, UV_DEFAULT_INDEX="https://shell.example/").variables["UV_DEFAULT_INDEX"] == "https://shell.example/"


@pytest.mark.parametrize(
    ("file", "text", "variables"),
    [
        ("x/pip/pip.conf", "[global]\nindex-url = {}", {"XDG_CONFIG_HOME": "{home}/x"}),
        ("venv/pip.conf", "[global]\nindex-url = {}", {"VIRTUAL_ENV": "{home}/venv"}),
        (".config/pip/pip.conf", "[install]\nindex_url = {}", {}),
        (".config/pip/pip.conf", "[global]\nindex-url = {}", {"PIP_INDEX_URL": ""}),
        (".config/pip/pip.conf", "no section", {"PIP_INDEX_URL": "{}"}),
        (".config/pip/pip.conf", "[global]\nindex-url = https://b.example", {"UV_INDEX_URL": "{}"}),
    ],
)
def test_an_index_is_read_wherever_pip_and_uv_read_it(home, file, text, variables):
    mine = "https://mine.example/simple"
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    (home / file).write_text(text.format(mine))
    own = {name: value.replace("{home}", str(home)).replace("{}", mine) for name, value in variables.items()}
    got = settings.of_user(own, home)
    assert got.indexes == [mine]
    assert mine in got.public, "another index makes other packages"


def test_an_explicit_index_is_not_used_for_all_packages(home):
    (home / ".config/uv/uv.toml").write_text('[[index]]\nname = "a"\nurl = "https://a.example"\nexplicit = true\n')
    assert of(home).indexes == []


def test_an_index_that_only_this_machine_reaches_is_named_and_not_sent(home):
    got = of(home, PIP_EXTRA_INDEX_URL="file:///srv/simple https://far.example/simple http://localhost:8/simple")
    assert got.variables["UV_INDEX"] == "https://far.example/simple"
    assert got.left_out == ("file:///srv/simple", "http://localhost:8/simple")


def test_for_a_run_on_this_machine_all_settings_count(home):
    more = {"PIP_CONFIG_FILE": os.devnull, "PIP_EXTRA_INDEX_URL": "file:///srv/simple", "PIP_FIND_LINKS": "/srv/wheels"}
    got = settings.of_user(more, home, far=False)
    assert (got.variables["UV_INDEX"], got.variables["UV_FIND_LINKS"], got.left_out) == (
        "file:///srv/simple",
        "/srv/wheels",
        (),
    )


def test_a_password_is_shown_nowhere(home):
    got = of(home, UV_DEFAULT_INDEX="https://me:sesame-1@index.example/simple", UV_INDEX_MINE_PASSWORD="sesame-2")
    assert "sesame" not in repr(got)
    assert "sesame" not in str(got.public)
    shown = got.hidden("cannot reach https://me:sesame-1@index.example/simple with sesame-2")
    assert "sesame" not in shown
    assert "index.example/simple" in shown


def test_an_empty_password_hides_nothing(home):
    assert of(home, UV_INDEX_MINE_PASSWORD="").hidden("Resolved 3 packages") == "Resolved 3 packages"


@pytest.mark.parametrize(
    ("index", "wanted"),
    [
        ("https://index.example/simple", "https://me:s%2Fa%20b@index.example/simple"),
        ("mine=https://index.example:8443", "mine=https://me:s%2Fa%20b@index.example:8443"),
        ("https://you:other@index.example/simple", "https://you:other@index.example/simple"),
        ("https://token@index.example/simple", "https://token@index.example/simple"),
        ("https://elsewhere.example/index.example/@x", "https://elsewhere.example/index.example/@x"),
    ],
)
def test_the_login_of_an_index_comes_from_netrc_as_in_pip(home, index, wanted):
    (home / ".netrc").write_text('machine index.example login me password "s/a b"\n')
    got = of(home, UV_INDEX=index)
    assert got.variables["UV_INDEX"] == wanted
    assert "s/a" not in str(got.public)
    (home / ".netrc").write_text('default login me password "s/a b"\n')
    assert of(home, UV_INDEX="https://any.example").variables["UV_INDEX"] == "https://me:s%2Fa%20b@any.example"
    (home / ".netrc").write_text("machine\n")
    assert of(home, UV_INDEX=index).variables["UV_INDEX"] == index


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_certificates_that_pip_and_uv_use_are_sent(home, name):
    (home / "ca.pem").write_bytes(b"authority")
    own = {"PIP_CONFIG_FILE": os.devnull, "PIP_CERT": "", name: str(home / "ca.pem")}
    assert settings.of_user(own, home).certificates == b"authority"


def test_a_companys_certificates_are_sent(home):
    (home / "ca.pem").write_bytes(b"authority")
    assert of(home, PIP_CERT=str(home / "ca.pem")).certificates == b"authority"


@pytest.mark.parametrize(
    "text", [b"no section\n", b"[global]\nindex-url = https://a.example\n" + b"#\n" * 9000 + b"\xff"]
)
def test_a_damaged_settings_file_is_not_fatal(home, text):
    (home / ".config/pip/pip.conf").write_bytes(text)
    (home / ".config/uv/uv.toml").write_text('pip = "x"')
    assert "UV_DEFAULT_INDEX" not in of(home).variables


def test_an_index_of_a_folder_gets_its_servers_login_but_not_the_default_one(home, monkeypatch):
    """An index line once got no login, so a private package was not found. But a folder may name any server at all."""
    (home / ".netrc").write_text("machine index.example login me password sesame\ndefault login me password for-all\n")
    monkeypatch.setenv("NETRC", str(home / ".netrc"))
    text = "--extra-index-url https://index.example/simple\n-i https://any.example/simple\n"
    needs = Requirements("requirements.txt", "file", (("requirements.txt", text.encode()),))
    _, got = take_out_logins(needs, of(home))
    assert got.variables["UV_INDEX"] == "https://me:sesame@index.example/simple"
    assert got.variables["UV_DEFAULT_INDEX"] == "https://any.example/simple"
    indexes = ("https://index.example/a", "https://any.example/b", "http://index.example/c")
    project = Requirements("pyproject.toml", "project", (), indexes=indexes)
    _, got = take_out_logins(project, of(home))
    in_the_clear = "http://index.example/c"
    assert got.variables["UV_INDEX"] == f"https://me:sesame@index.example/a https://any.example/b {in_the_clear}"
    assert "sesame" not in repr(got)
    with_login, *others = project.wishes(())
    assert (with_login.kind, with_login.words) == ("packages from, with your login there:", "https://index.example/a")
    assert {wish.kind for wish in others} == {"packages from:"}
