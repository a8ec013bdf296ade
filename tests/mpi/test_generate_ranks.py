"""`athanor generate` on several ranks: under every layout its greedy text is that of `transformers`."""
import pathlib
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))
from greedy import GREEDY, answers_of, greedy_theirs, make_model, make_prompts  # noqa: E402

COUNT = 24
# More than a batch of 3 rows has room for on 4 data ranks, so that texts end and others take their places.
PROMPTS = make_prompts(14)
BATCH = ["--batch-size", "3", "--max-new-tokens", COUNT]
TENSOR, PIPELINE = "parallelism.tensor_parallel_degree", "parallelism.pipeline_parallel_degree"
EXPERT = "parallelism.expert_parallel_degree"
LAYOUTS = {
    "data": (3, []),
    "tensor": (2, [f"{TENSOR}=2"]),
    "key and value heads on two ranks": (4, [f"{TENSOR}=4"]),
    "pipeline": (2, [f"{PIPELINE}=2"]),
    "stages in turns": (2, [f"{PIPELINE}=2", "parallelism.virtual_stages=2", "parallelism.pipeline_schedule=interleaved_1f1b"]),
    "tensor and pipeline": (4, [f"{TENSOR}=2", f"{PIPELINE}=2"]),
    "data and tensor": (4, [f"{TENSOR}=2"]),
    "data and pipeline": (4, [f"{PIPELINE}=2"]),
    "experts": (2, [f"{EXPERT}=2"]),
    "experts gathered": (4, [f"{EXPERT}=4", "moe.dispatch=allgather"]),
    "experts in two groups": (4, [f"{EXPERT}=2", "moe.dispatch=all_to_all", "parallelism.data_parallel_replicate_degree=2"]),
    "experts and tensor": (4, [f"{EXPERT}=2", f"{TENSOR}=2"]),
    "experts and pipeline": (4, [f"{EXPERT}=2", f"{PIPELINE}=2"]),
    "all": (8, [f"{EXPERT}=2", f"{PIPELINE}=2", f"{TENSOR}=2"]),
}
CASES = [("olmoe", name) for name in LAYOUTS] + [("llama", name) for name in LAYOUTS if EXPERT not in "".join(LAYOUTS[name][1])] + \
        [("qwen3_moe", "all"), ("qwen3_moe", "experts"), ("olmo", "tensor and pipeline"), ("qwen3", "key and value heads on two ranks")]
QUICK = {("olmoe", "experts gathered"), ("llama", "stages in turns"), ("qwen3_moe", "experts"),
         ("olmo", "tensor and pipeline"), ("qwen3", "key and value heads on two ranks")}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Returns a function from a name to the model's folder and its greedy text by `transformers`."""
    made = {}

    def find(name):
        if name not in made:
            folder = make_model(tmp_path_factory.mktemp(name) / "hf", name)
            made[name] = folder, greedy_theirs(folder, PROMPTS, COUNT)
        return made[name]

    return find


@pytest.fixture
def open_mpi(program):
    import launchers
    launcher = launchers.find("Open MPI") or launchers.find("MPICH")
    if launcher is None:
        pytest.skip("no mpirun on the PATH")
    return launcher


def words_of(layout):
    return [word for field in layout for word in ("--set", field)]


def prompts_file(folder):
    file = folder / "prompts.txt"
    file.write_text("".join(prompt + "\n" for prompt in PROMPTS))
    return file


@pytest.mark.parametrize("model,layout", [pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow) for case in CASES])
def test_greedy_text_under_every_layout_equals_that_of_transformers(open_mpi, program, models, tmp_path, model, layout):
    folder, theirs = models(model)
    ranks, fields = LAYOUTS[layout]
    code, out, err, _ = open_mpi.run(ranks, program("athanor"), "generate", folder, "--prompts", prompts_file(tmp_path), *BATCH, *GREEDY,
                                     *words_of(fields))
    assert code == 0, out + err
    assert answers_of(out) == theirs
    assert len({len(ids) for ids, _ in theirs}) > 4  # texts end at different times


def test_ranks_without_a_text_go_on_as_long_as_others_have_one(open_mpi, program, models):
    folder, theirs = models("olmoe")
    for count in (1, 3):  # texts of two ranks that share the experts
        prompts = [word for prompt in PROMPTS[:count] for word in ("--prompt", prompt)]
        code, out, err, _ = open_mpi.run(2, program("athanor"), "generate", folder, *prompts, "--max-new-tokens", COUNT, *GREEDY,
                                         *words_of([f"{EXPERT}=2"]))
        assert code == 0, out + err
        assert answers_of(out) == theirs[:count]


@pytest.mark.every_launcher
def test_each_launcher_gives_the_same_samples_and_only_the_first_rank_prints(launcher, program, models, tmp_path):
    folder, _ = models("llama")
    words = ["generate", folder, "--prompts", prompts_file(tmp_path), *BATCH, "--dtype", "float32", "--seed", "3", "--top-p", "0.9"]
    alone = subprocess.run([str(word) for word in [program("athanor"), *words]], capture_output=True, text=True, check=True)
    code, out, err, _ = launcher.run(3, program("athanor"), *words)  # each rank has the whole model: the same bits
    assert code == 0, out + err
    assert out == alone.stdout


def test_lines_of_standard_input_are_answered_as_they_come(open_mpi, program, models):
    folder, theirs = models("llama")
    command = [open_mpi.path, *open_mpi.options, "-n", "2", program("athanor"), "generate", folder, "--prompts", "-", "--max-new-tokens", COUNT,
               *GREEDY, *words_of([f"{TENSOR}=2"])]
    job = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        for prompt, answer in zip(PROMPTS[:3], theirs):
            job.stdin.write(prompt + "\n")
            job.stdin.flush()
            assert answers_of(job.stdout.readline()) == [answer]
            time.sleep(0.3)  # the other rank waits meanwhile
        job.stdin.close()
        assert job.stdout.read() == "" and job.wait(timeout=120) == 0
    finally:
        job.kill()


@pytest.mark.parametrize("ranks,words,said", [
    (2, ["--prompt", "a", "--set", "parallelism.tensor_parallel_degree=4"], "tensor"),
    (2, ["--prompt", "a", "--set", "train.steps=4"], "only the layout can be set"),
    (2, ["--prompts", "nowhere.txt"], "--prompts: nowhere.txt is not there"),
    (3, ["--prompt", "a", "--max-new-tokens", "1000", "--set", "parallelism.pipeline_parallel_degree=3"], "more than the model's 160 positions"),
])
def test_a_wrong_job_ends_with_code_2_and_one_line(open_mpi, program, models, ranks, words, said):
    folder, _ = models("llama")
    code, out, err, seconds = open_mpi.run(ranks, program("athanor"), "generate", folder, *words)
    lines = [line for line in err.splitlines() if line.startswith(("error", "[", "rank")) or said in line]
    assert code == 2 and out == "" and sum(said in line for line in lines) == 1 and seconds < 90, err
