"""scripts/check_includes accepts what the design allows and names what it does not."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(tmp_path, files):
    """Runs the script over an invented src/ of {name: text}; returns (exit code, its lines)."""
    for name, text in files.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run([sys.executable, ROOT / "scripts/check_includes", tmp_path / "src"], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_an_allowed_edge_passes_also_through_other_rooms(tmp_path):
    code, out = check(tmp_path, {"base/error.h": "", "arch/a.cpp": '#include "base/error.h"\n'})
    assert (code, out) == (0, "")


@pytest.mark.parametrize("room,other", [("base", "config"), ("dataset", "arch"), ("checkpoint", "model"), ("model", "train")])
def test_a_forbidden_edge_is_named_with_file_and_line(tmp_path, room, other):
    code, out = check(tmp_path, {f"{other}/x.h": "", f"{room}/a.cpp": f'// why\n#include "{other}/x.h"\n'})
    assert code == 1
    assert out.startswith(f"src/{room}/a.cpp:2: {room} may not include {other} ({other}/x.h)")


def test_libtorch_in_a_room_without_it_is_refused_also_by_way_of_another_file(tmp_path):
    files = {"dataset/a.h": "#include <ATen/ATen.h>\n", "dataset/b.cpp": '#include "dataset/a.h"\n'}
    code, out = check(tmp_path, files)
    assert code == 1
    assert "src/dataset/a.h:1: dataset does without libtorch" in out
    assert "src/dataset/b.cpp:1: dataset does without libtorch, but this reaches dataset/a.h -> ATen/ATen.h" in out


def test_the_front_may_not_reach_libtorch_and_its_core_may(tmp_path):
    files = {"model/decoder.h": "#include <ATen/ATen.h>\n", "cli/core/train.cpp": '#include "model/decoder.h"\n'}
    assert check(tmp_path, files)[0] == 0
    code, out = check(tmp_path, {"cli/train.cpp": '#include "model/decoder.h"\n'})
    assert code == 1 and "src/cli/train.cpp:1: cli does without libtorch" in out


def test_kernels_may_name_libtorch_in_one_file_and_not_in_two(tmp_path):
    assert check(tmp_path, {"kernels/cpu/gemm.cpp": "#include <ATen/native/CPUBlas.h>\n"})[0] == 0
    code, out = check(tmp_path, {"kernels/cpu/other.cpp": "#include <ATen/ATen.h>\n"})
    assert code == 1 and "kernels/cpu/gemm.cpp is the one file that may" in out


def test_the_reference_of_verify_may_not_use_the_arithmetic_that_it_judges(tmp_path):
    files = {"arch/model_spec.h": "", "blocks/attention.h": "", "verify/portable/model.cpp": '#include "arch/model_spec.h"\n'}
    assert check(tmp_path, files)[0] == 0
    code, out = check(tmp_path, {"verify/portable/model.cpp": '#include "blocks/attention.h"\n'})
    assert code == 1 and "src/verify/portable/model.cpp:1: verify/portable/ may not include blocks (blocks/attention.h)" in out


def test_a_cycle_between_files_is_named(tmp_path):
    code, out = check(tmp_path, {"base/a.h": '#include "base/b.h"\n', "base/b.h": '#include "base/a.h"\n'})
    assert code == 1 and "include cycle: base/a.h -> base/b.h -> base/a.h" in out


def test_an_unknown_room_and_a_missing_file_are_named(tmp_path):
    code, out = check(tmp_path, {"utils/a.h": "", "base/a.cpp": '#include "error.h"\n'})
    assert code == 1
    assert "src/utils/a.h:1: utils/ is no room" in out and 'src/base/a.cpp:1: no file "error.h" in src/' in out


def test_our_own_sources_hold_the_walls():
    done = subprocess.run([sys.executable, ROOT / "scripts/check_includes"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_only_tests_may_include_what_is_listed_for_tests(tmp_path):
    files = {"prepare/prepare.h": "", "dataset/a_test.cpp": '#include "prepare/prepare.h"\n'}
    assert check(tmp_path, files)[0] == 0
    code, out = check(tmp_path, {"dataset/a.cpp": '#include "prepare/prepare.h"\n'})
    assert code == 1 and "src/dataset/a.cpp:1: dataset may not include prepare" in out


def test_the_benchmark_of_documents_does_without_libtorch_and_the_others_need_not(tmp_path):
    assert check(tmp_path, {"bench/gemm.cpp": "#include <ATen/ATen.h>\n"})[0] == 0
    code, out = check(tmp_path, {"bench/data/data.cpp": "#include <ATen/ATen.h>\n"})
    assert code == 1 and "src/bench/data/data.cpp:1: bench does without libtorch" in out


def test_a_type_that_two_rooms_define_is_named_unless_it_is_in_a_source_of_its_own(tmp_path):
    model = "namespace athanor::inline model {\nclass Decoder : public Stage {\n};\n}  // namespace athanor::inline model\n"
    other = "namespace athanor::inline eval {\nstruct Decoder {\n};\n}  // namespace athanor::inline eval\n"
    code, out = check(tmp_path, {"model/decoder.h": model, "eval/a.h": other})
    assert code == 1 and "Decoder is also a type of" in out
    hidden = other.replace("struct", "namespace {\nstruct").replace("};\n", "};\n}  // namespace\n")
    code, out = check(tmp_path, {"eval/a.h": hidden})
    assert (code, out) == (0, "")


@pytest.mark.parametrize("line", ["namespace athanor {", "namespace athanor::inline eval {"])
def test_the_namespace_of_a_file_is_that_of_its_room(tmp_path, line):
    code, out = check(tmp_path, {"model/a.h": f"{line}\nint x;\n}}  // namespace athanor\n"})
    assert code == 1 and "src/model/a.h:1: write `namespace athanor::inline model`" in out
