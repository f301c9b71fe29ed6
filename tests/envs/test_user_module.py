"""Importing a user's file or module: what is recorded, and what is refused."""

import sys
from hashlib import sha256

import pytest

from mbpo.envs.user_module import import_module_or_file
from mbpo.errors import UsageError

pytestmark = pytest.mark.usefixtures("workplace")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_is_imported_with_its_folder_first_on_the_path(tmp_path):
    write(tmp_path / "deep" / "helper_of_mine.py", "VALUE = 7\n")
    file = write(tmp_path / "deep" / "env_of_mine.py", "import helper_of_mine\nVALUE = helper_of_mine.VALUE\n")
    record = import_module_or_file(str(file))
    assert (record.path, record.sha256) == (str(file), sha256(file.read_bytes()).hexdigest())
    assert sys.modules["env_of_mine"].VALUE == 7
    assert sys.path[0] == str(tmp_path / "deep")


def test_a_relative_file_is_recorded_by_its_full_path(tmp_path):
    file = write(tmp_path / "deep" / "env_of_mine.py", "")
    assert import_module_or_file("deep/env_of_mine.py").path == str(file)


def test_importing_the_same_file_again_does_not_run_it_again(tmp_path):
    file = write(tmp_path / "env_of_mine.py", "import sys\nsys.runs = getattr(sys, 'runs', 0) + 1\n")
    first, second = import_module_or_file(str(file)), import_module_or_file("env_of_mine.py")
    assert first == second
    assert sys.runs == 1
    del sys.runs


def test_a_file_whose_name_is_taken_by_an_imported_module_is_refused(tmp_path):
    import_module_or_file(str(write(tmp_path / "a" / "env_of_mine.py", "")))
    other = write(tmp_path / "b" / "env_of_mine.py", "")
    with pytest.raises(UsageError, match=r"take the place of the module 'env_of_mine' \(.*a/env_of_mine.py\)"):
        import_module_or_file(str(other))


@pytest.mark.parametrize("name", ["json", "sys", "this", "gymnasium", "mbpo"])
def test_a_file_named_like_a_known_module_is_refused(tmp_path, name):
    file = write(tmp_path / "deep" / f"{name}.py", "")
    with pytest.raises(UsageError, match=f"would take the place of the module '{name}'.*rename the file"):
        import_module_or_file(str(file))
    assert str(file.parent) not in sys.path


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("missing.py", "'missing.py' is no Python file; give the path of an existing .py file"),
        ("folder/missing", "is no Python file"),
        ("notes.txt", "is no Python file"),
        ("folder.py", "is no Python file"),
        ("two.dots.py", "has a dot in its name; rename the file"),
        ("missing_module", "'missing_module' was not found"),
        ("missing_module.inner", "'missing_module.inner' was not found"),
        ("json.missing", "'json.missing' was not found"),
        ("sys", "'sys' is not a file"),
        ("namespace_folder", "'namespace_folder' is not a file"),
        ("", "environment module ''"),
        (".relative", "environment module '.relative'"),
    ],
)
def test_what_cannot_be_imported_is_refused(tmp_path, target, message):
    write(tmp_path / "notes.txt", "")
    write(tmp_path / "two.dots.py", "")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "namespace_folder").mkdir()
    with pytest.raises(UsageError, match=message):
        import_module_or_file(target)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nx / 0\n", "ZeroDivisionError: division by zero, in .*env_of_mine.py, line 2"),
        ("x = = 1\n", "SyntaxError: invalid syntax"),
        ("\nimport missing_module_of_mine\n", "No module named 'missing_module_of_mine', in .*env_of_mine.py, line 2"),
        ("raise SystemExit(0)\n", "SystemExit: 0"),
    ],
)
@pytest.mark.parametrize("target", ["env_of_mine.py", "env_of_mine"])
def test_an_exception_inside_is_told_with_its_place(tmp_path, text, message, target):
    write(tmp_path / "env_of_mine.py", text)
    path = sys.path.copy()
    with pytest.raises(UsageError, match=message):
        import_module_or_file(target)
    assert "env_of_mine" not in sys.modules
    assert sys.path == path


def test_a_dotted_module_is_found_in_the_working_folder(tmp_path):
    write(tmp_path / "package_of_mine" / "__init__.py", "")
    file = write(tmp_path / "package_of_mine" / "envs.py", "VALUE = 7\n")
    record = import_module_or_file("package_of_mine.envs")
    assert (record.path, record.sha256) == (str(file), sha256(file.read_bytes()).hexdigest())
    package = import_module_or_file("package_of_mine")
    assert package.path == str(file.parent / "__init__.py")


def test_keyboard_interrupt_passes_through(tmp_path):
    file = write(tmp_path / "env_of_mine.py", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        import_module_or_file(str(file))
