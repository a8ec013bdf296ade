"""What `scripts/measure_house` counts, on a small tree."""
import pathlib
import subprocess

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "measure_house"


def listed(what, folder):
    return subprocess.run([SCRIPT, "--list", what, folder], capture_output=True, text=True, check=True).stdout.splitlines()


def test_it_lists_stored_functions_questions_about_devices_and_headers_with_one_user(tmp_path):
    files = {"train/a.h": "struct A {\n  std::function<void()> called;\n  void take(const std::function<void()>& passed);\n};\n",
             "train/a.cpp": '#include "train/a.h"\n', "train/b.cpp": '#include "train/a.h"\nbool b = x.is_cpu();  // is_cpu()\n',
             "ops/c.cpp": "bool c = x.is_cpu();  // as make_sgd\n", "train/b_test.cpp": "std::function<void()> ignored;\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert listed("functions", tmp_path) == ["train/a.h:2: std::function<void()> called;"]
    assert listed("devices", tmp_path) == ["train/b.cpp:2: bool b = x.is_cpu();  // is_cpu()"]
    assert listed("single", tmp_path) == ["train/a.h"]
    assert len(listed("small", tmp_path)) == 4
    assert listed("touch", tmp_path) == ["an optimizer (SGD): ops/c.cpp"]
