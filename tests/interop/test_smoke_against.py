"""athanor smoke --trace and --against: the first step and tensor in which two builds differ.

Other builds are played by scripts that run this one: with another path of products, with a function of the C library
replaced (so that one kernel computes something else, without a second build), or with options taken away. A whole smoke test
takes seconds, so one is made on the library and one on tiles, and scripts answer with what these two have written.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest
from conftest import ROOT

CPUS = pathlib.Path("/proc/cpuinfo").read_text()
TILES = "avx512" if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(CPUS.split()) else "avx2"  # the faster of the paths that widen
ON_LIBRARY, ON_TILES = {"ATHANOR_MATMUL": "library"}, {"ATHANOR_MATMUL": TILES}
needs_avx2 = pytest.mark.skipif("avx2" not in CPUS or "fma" not in CPUS, reason="this CPU has no path avx2")


def run_smoke(athanor, folder, *arguments, **variables):
    """Runs athanor smoke with a separate folder for temporary files, which must stay empty."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    done = subprocess.run([str(athanor.path), "smoke", *map(str, arguments)], capture_output=True, text=True, timeout=600, cwd=folder,
                          env={**os.environ, **ON_LIBRARY, **variables, "TMPDIR": str(temporary)})
    assert not list(temporary.iterdir()), "something was left behind"
    return done


def write_script(athanor, folder, script, name="other-athanor"):
    """Writes another build's program as a script in which ATHANOR is this build's program."""
    path = folder / name
    path.write_text("#!/bin/bash\n" + script.replace("ATHANOR ", f"{athanor.path} "))
    path.chmod(0o755)
    return path


@pytest.fixture
def smoke(athanor, tmp_path):
    return lambda *arguments, **variables: run_smoke(athanor, tmp_path, *arguments, **variables)


@pytest.fixture
def other(tmp_path, athanor):
    return lambda script, name="other-athanor": write_script(athanor, tmp_path, script, name)


@pytest.fixture(scope="module")
def on_the_library(athanor, tmp_path_factory):
    """What a smoke test on the library printed, and the trace that it wrote."""
    folder = tmp_path_factory.mktemp("library")
    return run_smoke(athanor, folder, "--trace", "trace.txt"), folder / "trace.txt"


def dense_alone(trace):
    """Returns the trace without its other models, which this build then does not train to their end."""
    content = json.loads(trace.read_text())
    content["models"] = [model for model in content["models"] if model["name"] == "dense"]
    return content


def in_lines(content):
    """Returns a trace as builds wrote it before it was JSON."""
    lines = ["athanor-smoke-trace 1", *(f"fact {name} {value}" for name, value in content["facts"])]
    for model in content["models"]:
        lines += [f"model {model['name']}", *(" ".join(map(str, tensor)) for tensor in model["tensors"])]
    return "\n".join([*lines, f"end {sum(len(model['tensors']) for model in content['models'])}", ""])


def answers_with(trace, otherwise='exec ATHANOR "$@"'):
    """Returns a script whose run of all models writes this trace."""
    return f'case "$*" in *--trace-tensor*) ;; "smoke --trace "*) cp {trace} "$3"; exit 0;; esac\n{otherwise}\n'


def with_planted(folder, source):
    """Returns the line of a script that replaces functions of the C library by those of a C source."""
    (folder / "plant.c").write_text(source)
    library = folder / "plant.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-fno-builtin", "-o", library, folder / "plant.c", "-ldl", "-lm"], check=True)
    return f'LD_PRELOAD={library} exec ATHANOR "$@"\n'


def test_what_the_library_multiplies_is_compared_with_no_golden_file_of_the_tiles_and_this_is_said(on_the_library):
    done, _ = on_the_library
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"no golden file for this kind of machine \([\w-]+-library-libtorch[\d.]+\): only the built-in checks were made", done.stdout)


def test_a_build_equals_itself_given_as_a_program_or_as_its_folder(smoke, other, on_the_library, tmp_path):
    (tmp_path / "dense.txt").write_text(json.dumps(dense_alone(on_the_library[1])))
    other(answers_with(tmp_path / "dense.txt"), "athanor")
    done = smoke("--against", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^all [\d,]+ tensors of dense have the same bits in .*athanor\n", done.stdout, re.M), done.stdout


def test_an_older_build_is_compared_by_the_trace_that_it_writes_in_lines(smoke, other, on_the_library, tmp_path):
    content = dense_alone(on_the_library[1])
    tensors = content["models"][0]["tensors"]
    place = next(i for i, tensor in enumerate(tensors) if tensor[:3] == [1, "update", "lm_head.weight"])
    tensors[place][5] = "0" * 32
    (tmp_path / "dense.txt").write_text(in_lines(content))
    done = smoke("--against", other(answers_with(tmp_path / "dense.txt")))
    assert done.returncode == 1, done.stdout + done.stderr
    assert places_of(done)["dense"] == (1, "update", "lm_head.weight")


@pytest.mark.slow  # the whole smoke test twice
def test_a_build_equals_its_program_and_its_folder(smoke, athanor):
    for given in (athanor.path, athanor.path.parent):
        done = smoke("--against", given)
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.fullmatch(r"all [\d,]+ tensors of dense, sparse have the same bits in .*athanor\n", done.stdout), done.stdout


@pytest.fixture(scope="module")
def planted_on_tiles(athanor, tmp_path_factory):
    """The line of a script that is a build with three faults, and the trace of all its models on tiles."""
    folder = tmp_path_factory.mktemp("planted")
    script = with_planted(folder, PLANTED).replace("LD_PRELOAD", f'{MODEL_OF_PLACE}\nFIRST_MODEL=$first LD_PRELOAD')
    done = subprocess.run([write_script(athanor, folder, script), "smoke", "--trace", folder / "trace.txt", "--golden-dir", folder],
                          capture_output=True, text=True, env={**os.environ, **ON_TILES})
    assert done.returncode == 0, done.stdout + done.stderr
    return script, folder / "trace.txt"


@needs_avx2
def test_another_path_of_products_is_named_first_and_then_the_first_tensor_and_its_values(smoke, other, planted_on_tiles):
    # Attention differs before anything that is planted there.
    done = smoke("--against", other(answers_with(planted_on_tiles[1], f'ATHANOR_MATMUL={TILES} exec ATHANOR "$@"')))
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"products: float32 library, bfloat16 library here, float32 {TILES}, bfloat16 {TILES} there"
    assert lines[1:3] == [f"{model}: trained there only, and not compared" for model in ("dense-bfloat16", "sparse-float32")]
    differs = re.fullmatch(r"dense: first differs at step 1, forward of microbatch 0, (model\.\S+) \(4x64x128 float32\): (\d+) of 32768 values differ, the largest "
                           r"difference is (\S+) at \[\d, \d+, \d+\] \((\S+) here, (\S+) there\), 2\^(-\d+\.\d) of the largest value; one rounding of float32 is at "
                           r"most 2\^-24 of a value; hashes [0-9a-f]{32} here, [0-9a-f]{32} there", lines[3])
    assert differs, lines[3]
    # The embedding multiplies nothing, and attention is the first place that does.
    assert differs[1] == "model.layers.0.self_attn" and int(differs[2]) > 0
    # Two orders of a sum of 128 products differ by 128 roundings of 2^-24 of the terms; attention has four such products.
    assert -24 - 4 < float(differs[6]) < -24 + 7 + 4
    assert "what computes this place from the one before it, in forward" in lines[4]
    assert lines[5].startswith("sparse: first differs at step 1, forward of microbatch 0, model.layers.0.")


# AdamW divides by 1 - beta^step, which no other code computes: at step 3 alone, the power is a little larger. Logarithms of sums
# of exponentials: at first the loss has 256 nearly equal terms, and attention at most 64. What the loss adds is read by no
# gradient, and what attention keeps is read by backward alone. Each fault is in one model of the same run, and the third model
# has none: a model ends with the powers of step 50, and the next begins with the logarithms after them. Routers have logarithms
# of few terms too, so the fault in attention is in the dense model.
PLANTED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
enum { kDense, kSparse, kDenseBfloat16, kSparseFloat32 };
static volatile int model, next;
__attribute__((constructor)) static void begin(void) {
  if (getenv("FIRST_MODEL")) model = next = atoi(getenv("FIRST_MODEL"));
}
double pow(double x, double y) {
  static double (*volatile real)(double, double);
  if (!real) real = (double (*)(double, double))dlsym(RTLD_NEXT, "pow");
  if (x <= 0.5 || x >= 1) return real(x, y);
  if (y == 50) next = model + 1;
  return real(x, y) * (model == kSparse && y == 3 ? 1 + 1e-4 : 1);
}
float logf(float x) {
  static float (*volatile real)(float);
  if (!real) real = (float (*)(float))dlsym(RTLD_NEXT, "logf");
  model = next;
  return real(x) + ((model == kDense && x <= 64) || (model == kSparseFloat32 && x > 64) ? 1e-4f : 0);
}
"""
# A run that is asked for one tensor trains its model alone.
MODEL_OF_PLACE = 'case "$*" in *sparse:*) first=1;; *dense-bfloat16:*) first=2;; *sparse-float32:*) first=3;; *) first=0;; esac'


def places_of(done):
    """Returns model → (step, phase, name) of the lines about the first tensor."""
    found = re.findall(r"^([\w-]+): first differs at step (\d+), ([^,]+), (\S+) \(", done.stdout, re.M)
    return {model: (int(step), phase, name) for model, step, phase, name in found}


@pytest.fixture(scope="module")
def against_planted(athanor, planted_on_tiles, tmp_path_factory):
    """The comparison with the build that has three faults."""
    script, trace = planted_on_tiles
    folder = tmp_path_factory.mktemp("against")
    done = run_smoke(athanor, folder, "--against", write_script(athanor, folder, answers_with(trace, script)), **ON_TILES)
    assert done.returncode == 1 and len(places_of(done)) == 3 and "products:" not in done.stdout, done.stdout + done.stderr
    return done


@needs_avx2
def test_a_fault_in_the_optimizer_is_found_in_the_update_of_its_step(against_planted):
    assert places_of(against_planted)["sparse"] == (3, "update", "model.embed_tokens.weight")
    assert "look at the optimizer" in against_planted.stdout


@needs_avx2
def test_a_fault_in_the_loss_is_found_in_the_loss(against_planted):
    assert places_of(against_planted)["sparse-float32"] == (1, "loss", "sum")
    # Every token's loss is 1e-4 larger, in all 8 * 63 that have a target; a float32 of about 5.5 rounds by 2^-22 at most.
    values = re.search(r"sparse-float32: first differs at .*? \((\S+) here, (\S+) there\)", against_planted.stdout)
    here, there = map(float, values.groups())
    assert there - here == pytest.approx(504 * 1e-4, abs=504 * 2**-22 + 1e-5)


@needs_avx2
def test_a_fault_in_what_attention_keeps_for_backward_is_found_in_backward(against_planted):
    # The last layer's attention goes back into the residual stream after the layer before it.
    assert places_of(against_planted)["dense"] == (1, "backward of microbatch 0", "model.layers.0")


OLDER = """
case "$*" in
  *--trace*) echo "athanor smoke: --trace: there is no such option" >&2; exit 2;;
  "smoke --help") ATHANOR smoke --help | grep -v trace;;
  "smoke --update --golden-dir "*) mkdir -p "$4"; cp GOLDEN "$4";;
  *) exec ATHANOR "$@";;
esac
"""


@needs_avx2
def test_a_build_that_writes_no_traces_is_compared_by_losses_and_norms(smoke, other, tmp_path):
    # The golden file of tiles has the dense model's bits of every path of this kind, and here another bit of one loss.
    path, = (ROOT / "tests" / "golden").glob("x86_64-v3-widening-*.json")
    golden = json.loads(path.read_text())
    golden["models"] = {"dense": golden["models"]["dense"]}
    step = golden["models"]["dense"]["steps"][3]
    step["loss_bits"] = f"{int(step['loss_bits'], 16) ^ 1:016x}"
    (tmp_path / "golden.json").write_text(json.dumps(golden))
    done = smoke("--against", other(OLDER.replace("GOLDEN", str(tmp_path / "golden.json"))), ATHANOR_MATMUL="default")
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "is too old to write a trace: only losses and gradient norms are compared" in lines[0] and lines[1].startswith("here athanor ")
    line, = lines[2:]
    assert re.fullmatch(r"dense: step 4 is the first that differs: loss \S+ here, \S+ there; gradient norm \S+ here, \S+ there", line), line


def test_a_build_that_is_not_deterministic_is_named(smoke, other, on_the_library, tmp_path):
    content = dense_alone(on_the_library[1])
    next(tensor for tensor in content["models"][0]["tensors"] if tensor[:3] == [2, "forward.0", "model.norm"])[5] = "0" * 32
    (tmp_path / "dense.txt").write_text(json.dumps(content))
    done = smoke("--against", other(answers_with(tmp_path / "dense.txt")))
    assert done.returncode == 1, done.stdout + done.stderr
    assert places_of(done)["dense"] == (2, "forward of microbatch 0", "model.norm")
    assert "a second run there has other bits" in done.stdout


BAD = {  # case → (script, a part of the line)
    "no athanor": ("echo hello\n", "no athanor with a smoke test: `smoke --help` ended with code 0; its last line: hello"),
    "a failing one": ("exit 3\n", "ended with code 3; it printed nothing"),
    "fails in its run": ('[ "$2" = --help ] && exec ATHANOR "$@"; echo "bad luck" >&2; exit 9\n', "wrote nothing (code 9); its last line: bad luck"),
    "dies in its run": ('[ "$2" = --help ] && exec ATHANOR "$@"; kill -SEGV $$\n', "wrote nothing (code 139)"),
    "writes nonsense": ('[ "$2" = --help ] && exec ATHANOR "$@"; echo nonsense >"$3"\n', "trace:1: this is no line of a trace"),
    "cut off": ('[ "$2" = --help ] && exec ATHANOR "$@"; printf "athanor-smoke-trace 1\\nmodel dense\\n" >"$3"\n', "trace:3: this is no line of a trace"),
}


QUICK = ("no athanor", "dies in its run", "writes nonsense")


@pytest.mark.parametrize("case", [pytest.param(case, marks=() if case in QUICK else pytest.mark.slow) for case in BAD])
def test_another_program_is_answered_by_one_line_and_leaves_nothing(smoke, other, case):
    script, expected = BAD[case]
    done = smoke("--against", other(script))
    assert done.returncode == 2 and expected in done.stderr, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1 and not done.stdout


def test_what_is_no_program_is_answered_by_one_line(smoke, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no program\n")
    for given, expected in {"nowhere": "there is no such program", "empty": "there is no athanor in this folder", "notes.txt": "may not be executed", "": "got none"}.items():
        done = smoke("--against", given)
        assert done.returncode == 2 and expected in done.stderr, done.stdout + done.stderr
        assert len(done.stderr.splitlines()) == 1 and not done.stdout
    (tmp_path / "damaged").write_bytes(b"\x7fELF")
    (tmp_path / "damaged").chmod(0o755)
    done = smoke("--against", "damaged")
    assert done.returncode == 2 and "cannot start" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_program_that_hangs_is_ended_with_what_it_has_started(smoke, other, tmp_path):
    done = smoke("--against", other(f"sleep 987 & echo $! >{tmp_path}/child; wait\n"), "--timeout", 1)
    assert done.returncode == 2 and "did not end within 1 s" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1
    child = int((tmp_path / "child").read_text())
    for _ in range(6000):
        if not pathlib.Path(f"/proc/{child}").exists() or "\nState:\tZ" in pathlib.Path(f"/proc/{child}/status").read_text():
            return
        time.sleep(0.02)
    pytest.fail("the child still runs")


def test_a_signal_ends_the_other_build_and_leaves_nothing(athanor, other, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    running = subprocess.Popen([str(athanor.path), "smoke", "--against", str(other(f"touch {tmp_path}/began; exec sleep 987\n"))],
                               env={**os.environ, "TMPDIR": str(temporary)}, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "began").exists():
        time.sleep(0.01)
    running.send_signal(signal.SIGTERM)
    said = running.communicate(timeout=300)[1]
    assert running.returncode == 128 + signal.SIGTERM and "stopped by SIGTERM" in said, said
    assert not list(temporary.iterdir())


def test_a_trace_has_every_step_and_one_tensor_alone_has_its_values(smoke, tmp_path, on_the_library):
    whole, trace = on_the_library
    assert whole.returncode == 0 and "loss" in whole.stdout, whole.stdout + whole.stderr
    content = json.loads(trace.read_text())
    assert content["format"] == "athanor-smoke-trace 2" and content["values"] == []
    for model in content["models"]:
        assert [step for step, *_ in model["tensors"]] == sorted(step for step, *_ in model["tensors"])
        assert {step for step, *_ in model["tensors"]} == set(range(51)), model["name"]
    lines = [line for line in trace.read_text().splitlines() if re.match(r"\[\d", line)]
    assert len(lines) == sum(len(model["tensors"]) for model in content["models"]), "a tensor has its own line"
    wanted = next(tensor for tensor in content["models"][0]["tensors"] if tensor[:3] == [3, "backward.1", "model.layers.1.mlp"])
    done = smoke("--trace", "one.txt", "--trace-tensor", "dense:3:backward.1:model.layers.1.mlp")
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr
    one = json.loads((tmp_path / "one.txt").read_text())
    assert one["models"] == [{"name": "dense", "tensors": [wanted]}] and one["facts"] == content["facts"]
    assert len(one["values"]) == 32768


def test_a_trace_goes_into_a_pipe(athanor, tmp_path):
    line = f"{athanor.path} smoke --golden-dir {tmp_path} --trace-tensor dense:0:initial:lm_head.weight --trace >(head -1 >{tmp_path}/head); wait"
    assert shutil.which("bash") and subprocess.run(["bash", "-c", line]).returncode == 0
    for _ in range(6000):
        if (tmp_path / "head").exists() and (tmp_path / "head").read_text():
            break
        time.sleep(0.02)
    assert (tmp_path / "head").read_text() == '{"format": "athanor-smoke-trace 2",\n'


def test_options_that_do_not_go_together_are_refused(smoke, tmp_path):
    for words in (["--against", "x", "--update"], ["--against", "x", "--trace", "t"], ["--trace-tensor", "dense:1:loss:sum"], ["--timeout", "5"],
                  ["--trace", "t", "--trace-tensor", "dense:1"], ["--trace", "t", "--trace-tensor", "dense:1:forward.0:model.nrom"],
                  ["--trace", "nowhere/t"]):
        done = smoke(*words)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and not done.stdout, (words, done.stdout, done.stderr)
        assert not (tmp_path / "t").exists()
