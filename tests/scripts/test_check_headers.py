"""scripts/check_headers names what a file uses of the standard library without its header, and accepts what is included."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(tmp_path, files):
    """Runs the script over an invented src/ of {name: text}; returns (exit code, its lines)."""
    for name, text in files.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run([sys.executable, ROOT / "scripts/check_headers", tmp_path / "src"], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_a_name_without_its_header_is_named_with_file_line_and_header(tmp_path):
    code, out = check(tmp_path, {"base/a.cpp": "#include <vector>\n\nauto n = std::count_if(a, b, c);\nint m = std::ranges::min(a);\n"})
    assert (code, out) == (1, "src/base/a.cpp:3: std::count_if needs <algorithm>\n")


def test_a_header_counts_through_headers_of_the_project_and_not_through_others(tmp_path):
    code, out = check(tmp_path, {"base/a.h": "#include <algorithm>\n", "base/b.h": '#include "base/a.h"\n',
                                 "base/a.cpp": '#include "base/b.h"\nauto n = std::count_if(a, b, c);\n',
                                 "base/b.cpp": "#include <torch/all.h>\nauto n = std::count_if(a, b, c);\n"})
    assert (code, out) == (1, "src/base/b.cpp:2: std::count_if needs <algorithm>\n")


def test_texts_and_comments_use_no_names_and_one_of_several_headers_is_enough(tmp_path):
    text = '// std::sort sorts\n#include <iostream>\n#include <map>\nauto t = "std::sort";\nauto r = R"(std::sort)";\nstd::pair<int, int> p;\nvoid f() { std::cout << std::endl; }\n'
    assert check(tmp_path, {"base/a.cpp": text}) == (0, "")


def test_the_sources_of_this_project_pass():
    done = subprocess.run([sys.executable, ROOT / "scripts/check_headers"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
