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
    ("beside", "The table lies beside the file."),
    ("alike", "Both are treated alike."),
    ("of its own", "It is a room of its own."),
    ("so many", "A job on so many ranks."),
    ("Nobody", "Nobody waits."),
    ("held against", "The result is held against the reference."),
    ("hold it against", "We hold it against the reference."),
    ("is over", "The step is over."),
    ("says", "The page says why."),
    ("goes on", "The run goes on."),
    ("told apart", "The two are told apart."),
    ("but for", "All but for one."),
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
        "README.md": "The run goes\non.\n",
        "src/a.cpp": '// Fields of\n// its own.\nfail("the run goes "\n     "on here");\n',
        "scripts/a": "#!/bin/bash\n# The run goes\n# on.\n",
    })
    assert code == 1
    assert [line.split(": write")[0] for line in lines] == ['README.md:1: "goes on"', 'scripts/a:2: "goes on"',
                                                           'src/a.cpp:1: "of its own"', 'src/a.cpp:3: "goes on"']


def test_a_comment_that_begins_with_of_is_found_and_a_page_may_begin_with_it(tmp_path):
    code, lines = check(tmp_path, {
        "README.md": "Of the ten ranks, two wait.\n",
        "src/a.cpp": "// Of a group.\nint x;  // of the rank\nint y;  // size of the rank\n// A part\n// of it.\n",
        "tests/a.py": "x = 1  # of the rank\n",
    })
    assert code == 1
    assert [line.split(": write")[0] for line in lines] == ['src/a.cpp:1: "Of"', 'src/a.cpp:2: "of"', 'tests/a.py:1: "of"']


def test_code_and_what_means_something_else_pass(tmp_path):
    code, lines = check(tmp_path, {
        "README.md": "Run `beside` now.\n\n```\nit says so\n```\n\nOne of its own checkpoints, and those of its own rows.\n",
        "src/a.cpp": '#include "room/beside.h"\nint beside = says(nobody);\n// `beside` is a name, and is_over too.\n'
                     "// It is over ten bytes long.\nconst int n = 1'000'000;  // bytes\n",
        "src/a_test.cpp": "TEST(Room, NobodySays) {}\n",
        "tests/a.py": 'text = "nobody says"\n',
        "scripts/tool": "#!/bin/bash\nbeside=${x#nobody}\n",
    })
    assert (code, lines) == (0, [])
