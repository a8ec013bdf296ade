"""Run folders that an earlier version wrote (tests/old_runs) are resumed to the numbers that it had.

They are compared bit by bit where the products have the path that wrote them, which is any x86-64 with AVX2 and the same libtorch.
Elsewhere losses and norms are compared within the bound of `athanor verify`, for which see docs/verify.md.
"""
import json
import math
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "old_runs"))
import old_runs  # noqa: E402


def had_the_bits_of(writer, reader):
    """True if what the writer's bits depend on is the same now. Paths of other types may have been added."""
    paths = {element: reader["matmul"][element] for element in writer["matmul"]}
    return reader["libtorch"] == writer["libtorch"] and paths == writer["matmul"]


def bound_of_verify(folder, program):
    """Returns by how much gradients of one step may differ, relative: in fp32 what verify's table has, in bf16 seven deviations."""
    if 'dtype = "bfloat16"' in (folder / "run.toml").read_text():
        return 7 * 2.0**-8
    done = subprocess.run([program, "verify", "run.toml", "--keep-size", "--reference", "portable", "--steps", "1"], cwd=folder,
                          capture_output=True, text=True, env={**old_runs.os.environ, **old_runs.ENVIRONMENT})
    return float(re.search(r"^gradients, step 1 .* (\S+) +\S+$", done.stdout, re.M)[1])


def distance(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)))


def assert_close(name, folder, program, before, after):
    """Each step is one from nearly the same weights. AdamW divides by a gradient's own size: an error ε of gradients is one of about
    √ε of an update, since elements that are small by chance have a large part of it."""
    bound = bound_of_verify(folder, program)
    expected = json.loads((folder / "expected.json").read_text())["steps"]
    for got, wanted in zip(old_runs.numbers(folder), expected, strict=True):
        for number in ("loss", "grad_norm"):
            assert got[number] == pytest.approx(wanted[number], rel=(got["step"] - old_runs.SAVED) * bound), (name, number, got, wanted)
    if before:
        wanted = old_runs.weights(folder / "expected.safetensors")
        for tensor, numbers in old_runs.weights(after).items():
            assert distance(numbers, wanted[tensor]) <= math.sqrt(bound) * distance(wanted[tensor], before[tensor]), (name, tensor)


def resume(name, folder, program, **environment):
    """Resumes the run in `folder`; returns its weights before and the file of those after."""
    old_runs.copy(name, folder)
    exported = name not in old_runs.NOT_EXPORTED
    before = old_runs.weights(old_runs.export(folder, program)) if exported else None
    old_runs.train(name, folder, program, **environment)
    return before, old_runs.export(folder, program) if exported else None


@pytest.mark.parametrize("name", old_runs.RUNS)
def test_a_run_of_an_earlier_version_is_resumed_to_its_numbers(program, tmp_path, name):
    athanor = program("athanor")
    before, after = resume(name, tmp_path, athanor)
    expected = json.loads((tmp_path / "expected.json").read_text())
    if not had_the_bits_of(expected["made_with"], old_runs.made_with(tmp_path)):
        return assert_close(name, tmp_path, athanor, before, after)
    assert old_runs.numbers(tmp_path) == expected["steps"]
    if after:
        assert old_runs.weights(after) == old_runs.weights(tmp_path / "expected.safetensors")


def test_on_another_path_of_products_it_is_resumed_within_the_bound_of_verify(program, tmp_path):
    athanor = program("athanor")
    before, after = resume("dense", tmp_path, athanor, ATHANOR_MATMUL="library")
    assert old_runs.numbers(tmp_path) != json.loads((tmp_path / "expected.json").read_text())["steps"], "the path made no difference"
    assert_close("dense", tmp_path, athanor, before, after)
