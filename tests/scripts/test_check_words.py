"""scripts/check_words names each word that the prose avoids, with its line, and leaves code alone."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(folder, files):
    """Runs the script over a folder with {name: text}; returns (exit code, its lines)."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    done = subprocess.run([sys.executable, ROOT / "scripts/check_words", folder], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout.splitlines()


def test_this_repository_passes():
    done = subprocess.run([sys.executable, ROOT / "scripts/check_words"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("word, text", [
    ("so many", "A job on so many ranks."),
    ("held against", "The result is held against the reference."),
    ("hold it against", "We hold it against the reference."),
])
def test_a_struck_word_is_found_in_a_page_a_comment_a_string_and_a_docstring(tmp_path, word, text):
    code, lines = check(tmp_path, {
        "README.md": f"# Title\n\n{text}\n",
        "docs/deep/page.md": f"{text}\n",
        "src/room/a.cpp": f'// {text}\nint x;\n\nconst char* message = "{text}";\n',
        "src/room/b.h": f"int x;  ///< {text}\n",
        "scripts/tool": f"#!/bin/bash\ntrue\n# {text}\n",
        "tests/test_x.py": f'def test_x():\n    """{text}"""\n',
    })
    assert code == 1
    places = [line.split(f': "{word}": write ') for line in lines]
    assert [place[0] for place in places] == ["README.md:3", "docs/deep/page.md:1", "scripts/tool:3", "src/room/a.cpp:1",
                                              "src/room/a.cpp:4", "src/room/b.h:1", "tests/test_x.py:2"]
    assert all(place[1] for place in places)


def test_words_are_found_across_the_ends_of_lines_and_of_strings(tmp_path):
    code, lines = check(tmp_path, {
        "README.md": "A job on so\nmany ranks.\n",
        "src/a.cpp": '// It holds this\n// against the reference.\nfail("there are so "\n     "many ranks");\n',
        "scripts/a": "#!/bin/bash\n# It has so\n# many ranks.\n",
    })
    assert code == 1
    assert [line.split(": write")[0] for line in lines] == ['README.md:1: "so many"', 'scripts/a:2: "so many"',
                                                           'src/a.cpp:1: "holds this against"', 'src/a.cpp:3: "so many"']


def test_a_comment_that_begins_with_of_is_found_and_a_page_may_begin_with_it(tmp_path):
    code, lines = check(tmp_path, {
        "README.md": "Of the ten ranks, two wait.\n",
        "src/a.cpp": "// Of a group.\nint x;  // of the rank\nint y;  // size of the rank\n// A part\n// of it.\n",
        "tests/a.py": "x = 1  # of the rank\n",
    })
    assert code == 1
    assert [line.split(": write")[0] for line in lines] == ['src/a.cpp:1: "Of"', 'src/a.cpp:2: "of"', 'tests/a.py:1: "of"']


def test_ordinary_english_passes(tmp_path):
    code, lines = check(tmp_path, {
        "README.md": "The page says why, beside the table. Nobody waits; the run goes on. All but for one are alike. It is a room of its own, "
                     "and there are so many that the step is over before the two are told apart.\n",
    })
    assert (code, lines) == (0, [])


def test_code_passes(tmp_path):
    code, lines = check(tmp_path, {
        "README.md": "Run `so many` now.\n\n```\nit has so many\n```\n",
        "src/a.cpp": "int so_many = 1;\nconst int n = 1'000'000;  // bytes\n",
        "src/a_test.cpp": "TEST(Room, SoMany) {}\n",
        "scripts/tool": "#!/bin/bash\nso_many=${x#so}\n",
    })
    assert (code, lines) == (0, [])
