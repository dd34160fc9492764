"""Which file lists a project's packages, what it names, and which changes lead to other packages."""

from contextlib import nullcontext

import pytest

from deploy.core.errors import UsageError
from deploy.report import packages
from deploy.report.console import Console
from deploy.send.folder import folder_look
from deploy.send.folder.credentials import SendChoice
from deploy.send.packages import project_file, requirements
from deploy.send.packages.from_source import git
from lab.waiting import spending_little


def project(folder, **files):
    """A folder with these files, and the paths that a push sends."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder, {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def read(folder, sent, path="requirements.txt"):
    return requirements.read(folder, path, sent)


def test_a_lock_takes_precedence_over_a_list_and_a_list_over_a_project(tmp_path):
    folder, sent = project(
        tmp_path, **{"uv.lock": "", "requirements.txt": "", "pyproject.toml": '[project]\nname="a"\ndependencies=[]'}
    )
    found = []
    while path := requirements.find(folder, "", sent)[0]:
        found.append(path)
        sent.remove(path)
    assert found == ["uv.lock", "requirements.txt", "pyproject.toml"]


def test_a_pyproject_with_only_tool_settings_is_not_a_project(tmp_path):
    folder, sent = project(tmp_path, **{"pyproject.toml": "[tool.ruff]\nline-length = 100"})
    assert requirements.find(folder, "", sent) == ("", False)


@pytest.mark.parametrize(
    ("name", "text", "way"),
    [
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^2"', "-e ."),
        ("pyproject.toml", "[tool.ruff]\nline-length = 100", ""),
        ("setup.py", "setup()", "-e ."),
        ("environment.yml", "dependencies: []", "requirements.txt"),
        ("train.py", "x", ""),
    ],
)
def test_packages_listed_for_another_tool_get_a_note_on_how_to_install_them(tmp_path, name, text, way):
    folder, sent = project(tmp_path, **{name: text})
    assert requirements.find(folder, "", sent) == ("", False)
    told = requirements.not_read(folder, sent)
    assert list(told) == ([name] if way else [])
    assert way in told.get(name, "")


def test_no_turns_requirements_off_and_a_named_file_takes_precedence(tmp_path):
    folder, sent = project(tmp_path, **{"requirements.txt": "a", "more/other file.txt": "b"})
    assert requirements.find(folder, "no", sent) == ("", False)
    assert requirements.find(folder, "more/other file.txt", sent) == ("more/other file.txt", False)


def test_a_file_of_the_folder_may_be_named_through_a_link(tmp_path):
    folder, sent = project(tmp_path, **{"requirements.txt": "a"})
    link = tmp_path.with_name(f"{tmp_path.name}-link")
    link.symlink_to(folder)
    for asked in (f"{link}/requirements.txt", f"{folder}/requirements.txt", f"../{folder.name}/requirements.txt"):
        assert requirements.find(link, asked, sent) == ("requirements.txt", False)


@pytest.mark.parametrize("asked", ["missing.txt", "../above.txt", "/etc/hostname", "kept-back.txt"])
def test_a_requirements_file_that_is_not_sent_is_refused(tmp_path, asked):
    folder, sent = project(tmp_path, **{"requirements.txt": "a", "kept-back.txt": "b"})
    with pytest.raises(UsageError, match=r"--requirements"):
        requirements.find(folder, asked, sent - {"kept-back.txt"})


def test_files_and_packages_that_a_file_names_are_read_too(tmp_path):
    folder, sent = project(
        tmp_path,
        **{
            "requirements.txt": "-rmore/base.txt\n-c limits.txt\nnumpy  # a comment\n",
            "more/base.txt": "-r ../limits.txt\n./pkg\n",
            "limits.txt": "six<2\n",
            "more/pkg/pyproject.toml": "",
            "more/pkg/code.py": "",
        },
    )
    needs = read(folder, sent)
    assert [path for path, _ in needs.files][:3] == ["requirements.txt", "more/base.txt", "limits.txt"]
    assert needs.packages == (("more/pkg", False),)


BLOCK = '# /// script\n# requires-python = ">=3.9"\n# dependencies = [\n{}# ]\n# ///\nimport fire\n'


def test_a_script_lists_its_packages_in_its_own_block(tmp_path):
    """uv runs such a script; once, each of its lines of code was read as a package."""
    own = BLOCK.format('#   "fire",\n#   "x-transformers[a] >= 2 ; python_version>\'3\'",\n')
    folder, sent = project(tmp_path, **{"train.py": f"import os\n{own}", "requirements.txt": "numpy"})
    needs = requirements.read(folder, "train.py", sent)
    lines = needs.files[0][1].decode().splitlines()
    assert (needs.path, needs.kind, len(needs.files)) == ("train.py", "file", 1)
    assert [*enumerate(lines, 1)][4:] == [(5, "fire"), (6, "x-transformers[a] >= 2 ; python_version>'3'")]
    assert not any(lines[:4])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import fire\n", "lists no dependencies"),
        (BLOCK.format("#   1,\n"), "lists no dependencies"),
        (BLOCK.format("#   fire,\n"), "Invalid value"),
        (
            "import os\n" + BLOCK.format("#   'fire',\n").replace("# ///\n", ""),
            r"train\.py: its `# /// script` block: line 2 begins it, .*: add the line `# ///` after its last line",
        ),
        (BLOCK.format("#   'fire',\n").replace("# ]", "#]"), "line 1 begins it, and nothing ends it"),
        (BLOCK.format("") + BLOCK.format(""), "line 7 begins another one"),
        (BLOCK.format("").replace("# ///\n", "# [tool.uv]\n# ///\n"), r"has a \[tool\] table"),
        (BLOCK.format('#   "./missing",\n'), r"train\.py:4: \./missing"),
        (BLOCK.format('#   " --index-url http://x/",\n'), r"lists  --index-url http://x/, an option of pip"),
    ],
)
def test_a_script_whose_block_cannot_be_used_is_refused(tmp_path, text, told):
    folder, sent = project(tmp_path, **{"train.py": text})
    with pytest.raises(UsageError, match=told):
        requirements.read(folder, "train.py", sent)


@pytest.mark.parametrize(
    ("block", "more", "wanted", "told"),
    [
        (BLOCK.format("#   'fire',\n"), {}, "", "--requirements 'my train.py' installs them\n"),
        (BLOCK.format("#   'fire',\n"), {"requirements.txt": "x\n"}, "", "installs them instead\n"),
        (BLOCK.format("#   'fire',\n").replace("# ///\n", ""), {}, "", "installs them\n"),
        (BLOCK.format("#   'fire',\n"), {}, "no", ""),
        ("# /// script\n# requires-python = '>=3.10'\n# ///\n", {}, "", ""),
        ("import fire\n", {}, "", ""),
    ],
)
def test_a_script_whose_block_is_not_read_is_named(tmp_path, capsys, block, more, wanted, told):
    """Once the run started without these packages, and only the ImportError said so."""
    folder, _ = project(tmp_path, **{"my train.py": block, **more})
    look = folder_look.look_at(folder, SendChoice())
    packages.read_requirements(wanted, folder, look, Console(), ("./my train.py", "--lr", "1"))
    assert told in (printed := capsys.readouterr().err)
    assert ("# /// script" in printed) == bool(told)


def test_the_last_end_among_consecutive_comments_closes_the_block(tmp_path):
    """As PEP 723 says, so that a block may hold the text of another."""
    own = '# /// script\n# dependencies = [\'fire\']\n#\n# more = """\n# ///\n# """\n# ///\n'
    folder, sent = project(tmp_path, **{"train.py": own})
    assert requirements.read(folder, "train.py", sent).files[0][1].decode().split() == ["fire"]


def test_a_block_whose_packages_are_written_with_escapes_costs_little_time(tmp_path):
    """Once, each package was looked for in each line: 850 kB took hours."""
    packages = ",".join([r'"\u0061"'] * 15_000)
    text = f"# /// script\n# dependencies = [{packages}]\n# ///\n" + "#\n" * 150_000
    folder, sent = project(tmp_path, **{"train.py": text})
    with spending_little():
        assert requirements.read(folder, "train.py", sent).path == "train.py"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("x @ file://[::::", "this address is not a plain one"),
        ("--index-url https://[::1", "this address is not a plain one"),
        ("a @ git+https://[::1/x", "Invalid IPv6 URL"),
        ("-r ../outside.txt", "outside the folder"),
        ("-r missing.txt", "no such file"),
        ("-e ../sibling", "outside the folder"),
        ("--find-links ./wheels", "Muster searches no folder"),
        ("./data", "no pyproject.toml or setup.py"),
        ("name @ hg+https://example.org/a", "Muster cannot fetch this kind of source"),
    ],
)
def test_a_line_that_cannot_work_on_a_host_is_refused_with_its_number(tmp_path, line, told):
    folder, sent = project(tmp_path, **{"requirements.txt": f"numpy\n\n{line}\n", "data/x": ""})
    with pytest.raises(UsageError, match=r"requirements\.txt:3: ") as refused:
        read(folder, sent)
    assert told in refused.value.message


def test_the_key_depends_on_the_code_of_a_package_only_if_it_is_not_editable(tmp_path):
    for line, same in (("-e ./pkg", True), ("-e./pkg", True), ("./pkg", False)):
        folder, sent = project(
            tmp_path, **{"requirements.txt": line, "pkg/setup.py": "", "pkg/a/code.py": "1", "pkg/b.py": "1"}
        )
        before = read(folder, sent).key()
        (folder / "pkg/a/code.py").write_text("2")
        (folder / "pkg/b.py").write_text("2")
        assert (read(folder, sent).key() == before) is same
        (folder / "pkg/setup.py").write_text("new")
        assert read(folder, sent).key() != before


def test_the_key_depends_on_a_list_that_an_editable_package_may_read(tmp_path):
    folder, sent = project(
        tmp_path, **{"requirements.txt": "-e ./pkg", "pkg/setup.py": "", "pkg/requirements/base.txt": "six"}
    )
    before = read(folder, sent).key()
    (folder / "pkg/requirements/base.txt").write_text("six\nnumpy")
    assert read(folder, sent).key() != before


def test_the_key_depends_on_the_base_and_the_index(tmp_path):
    folder, sent = project(tmp_path, **{"requirements.txt": "numpy"})
    needs = read(folder, sent)
    assert len({needs.key("base", "index"), needs.key("other", "index"), needs.key("base", "other")}) == 3


def test_a_project_with_a_build_is_installed_as_editable_from_its_folder(tmp_path):
    text = '[project]\nname = "a"\nversion = "1"\ndependencies = ["six"]\n'
    folder, sent = project(tmp_path, **{"pyproject.toml": text})
    assert read(folder, sent, "pyproject.toml").kind == "file"
    dynamic = text.replace('dependencies = ["six"]', 'dynamic = ["dependencies"]')
    folder, sent = project(tmp_path, **{"pyproject.toml": dynamic})
    assert read(folder, sent, "pyproject.toml").kind == "project", "only a build says what it needs"
    (folder / "pyproject.toml").write_text(f'{text}[build-system]\nrequires = ["setuptools"]\n')
    needs = read(folder, sent, "pyproject.toml")
    assert (needs.kind, needs.packages) == ("project", ((".", True),))


def test_a_broken_project_file_is_named(tmp_path):
    folder, sent = project(tmp_path, **{"pyproject.toml": "[project\n"})
    with pytest.raises(UsageError, match=r"pyproject\.toml"):
        read(folder, sent, "pyproject.toml")


@pytest.mark.parametrize(
    ("word", "url", "revision"),
    [
        ("git+ssh://git@host.example/a/b.git", "ssh://git@host.example/a/b.git", "HEAD"),
        ("git+ssh://git@host.example/a/b.git@feature/x#egg=b", "ssh://git@host.example/a/b.git", "feature/x"),
        ("git+https://host.example/a@v1.2#subdirectory=c", "https://host.example/a", "v1.2"),
    ],
)
def test_a_git_source_has_an_address_and_a_revision(word, url, revision):
    assert git.split(word) == (url, revision)


def test_git_sources_of_all_files_are_fetched_here(tmp_path):
    folder, sent = project(
        tmp_path,
        **{"requirements.txt": "-r b.txt\nx @ git+ssh://git@h/x.git@v1\n", "b.txt": "-e git+https://h/y#egg=y ; a\n"},
    )
    assert read(folder, sent).git == ("git+ssh://git@h/x.git@v1", "git+https://h/y#egg=y")


def test_a_git_source_of_a_uv_lock_keeps_its_subdirectory(tmp_path):
    source = 'source = { git = "https://host/r.git?subdirectory=libs%2Fx&rev=v1#0123456789abcdef" }'
    texts = {
        "uv.lock": f'[[package]]\nname = "x"\n{source}\n',
        "pyproject.toml": '[project]\nname = "a"\ndependencies = ["x"]\n',
    }
    for path, text in texts.items():
        (tmp_path / path).write_text(text)
    needs = requirements.read(tmp_path, "uv.lock", set(texts))
    assert needs.git == ("git+https://host/r.git@0123456789abcdef#subdirectory=libs/x",)


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        (">=3.11", True),
        (">=3.13", False),
        (">=3.10,<3.11", False),
        (">=3.9, <4.0", True),
        ("==3.11.*", True),
        ("!=3.11.*", False),
        ("==3.10.*", False),
        ("~=3.10", True),
        ("~=3.11.8", False),
        ("<=3.11", False),
        ("^3.12", False),
        ("of my own", True),
    ],
)
def test_a_project_for_another_python_is_recognized_by_its_version_range(asked, fits):
    text = f'[project]\nname = "x"\nrequires-python = "{asked}"\n'
    assert project_file.other_python(text, "3.11.7") == ("" if fits else asked)


def test_files_that_name_each_other_often_are_read_once(tmp_path):
    for number in range(14):
        again = "-r requirements.txt\n" * 500
        (tmp_path / f"r{number}.txt").write_text(f"-r r{number + 1}.txt\n{again}")
    (tmp_path / "r14.txt").write_text("tqdm\n")
    (tmp_path / "requirements.txt").write_text("-r r0.txt\n")
    sent = {path.name for path in tmp_path.iterdir()}
    assert {path for path, _ in requirements.read(tmp_path, "requirements.txt", sent).files} == sent


@pytest.mark.parametrize("text", ["tqdm\n" * 20_001, "\n" * 200_001, "a @ file:" + "%2e" * 40_000])
def test_a_file_with_too_many_lines_or_too_long_a_line_is_refused_by_its_line(tmp_path, text):
    (tmp_path / "requirements.txt").write_text(text)
    with pytest.raises(UsageError, match=r"^requirements\.txt:(20001|200001|1): more than"):
        requirements.read(tmp_path, "requirements.txt", {"requirements.txt"})


@pytest.mark.parametrize(
    ("more", "kind"),
    [("", "project"), ("[tool.uv]\npackage = false", "file"), ("[tool.uv]\npackage = true", "project")],
)
def test_a_project_is_a_package_by_the_same_rule_as_in_uv(tmp_path, more, kind):
    text = '[project]\nname = "a"\nversion = "1"\ndependencies = ["six"]\n[build-system]\nrequires = ["hatchling"]\n'
    folder, sent = project(tmp_path, **{"pyproject.toml": text + more})
    needs = requirements.read(folder, "pyproject.toml", sent)
    assert (needs.kind, bool(needs.packages)) == (kind, kind == "project")


LOCKED = """
[[package]]
name = "my-project"
source = { virtual = "." }

[package.metadata]
requires-dist = [
    { name = "numpy", specifier = ">=2,<3" }, { name = "rich", extras = ["x"] }, { name = "x-y", url = "https://h/x" },
    { name = "part", editable = "part" }, { name = "my-project", extras = ["all"] }
]

[[package]]
name = "part"
source = { editable = "part" }
metadata = { requires-dist = [{ name = "six" }] }
"""


@pytest.mark.parametrize(
    ("more", "of_part"),
    [
        ("", ""),
        ("einops>=0.8", ""),
        ("torch-ema @ https://h/e.whl", ""),
        ("rich[x,Y_z]>=13", ""),
        ("", "einops"),
    ],
)
def test_a_lock_older_than_a_dependency_of_its_project_is_refused(tmp_path, more, of_part):
    """Once, the run silently began without the package, or without the packages of its extra."""
    needs = ["numpy < 3, >= 2.1", " Rich[x] (>=13)", "X_Y @ https://h/x.whl", "part", "My.Project [All]"]
    text = f'[project]\nname = "My_Project"\ndependencies = {[*needs, *filter(None, [more])]}\n'
    part = f'[project]\nname = "part"\ndependencies = {["six", *filter(None, [of_part])]}\n'
    texts = {"uv.lock": LOCKED, "pyproject.toml": text, "part/pyproject.toml": part}
    folder, sent = project(tmp_path, **texts)
    if not more and not of_part:
        assert read(folder, sent, "uv.lock").kind == "uv.lock"
        return
    with pytest.raises(
        UsageError,
        match=r"uv\.lock: it was written before (part/)?pyproject.toml asked "
        r"for",
    ) as refused:
        read(folder, sent, "uv.lock")
    assert refused.value.message.endswith(more or of_part)
    assert refused.value.hint == "uv lock"


@pytest.mark.parametrize(
    "lock",
    ["package = 5", '[package]\nname = "p"', "[[package]]\nsource = 5\nmetadata = 5", 'package = ["p"]']
    + [f"[[package]]\nsource = {{ virtual = '.' }}\nmetadata = {{ requires-dist = {odd} }}" for odd in ("5", '["x"]')],
)
def test_an_oddly_shaped_lock_gives_no_traceback(tmp_path, lock):
    needs = "[]" if "requires" not in lock else "['x']"
    texts = {"uv.lock": lock, "pyproject.toml": f'[project]\nname = "p"\ndependencies = {needs}\n'}
    folder, sent = project(tmp_path, **texts)
    with pytest.raises(UsageError) if "requires" in lock else nullcontext():
        read(folder, sent, "uv.lock")
