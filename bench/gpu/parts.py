"""The parts of gpu_check, most important first: is it correct, then how fast is it."""
import checkpoint_round
import routing_rate
import several
import speed
from running import Failed, Part, Skipped, how_it_ended, read_report


def tests_of(report):
    return [(f"{suite['name']}.{test['name']}", test) for suite in report["testsuites"] for test in suite["testsuite"]]


def run_gtest(machine, clock, program, pattern, log, prefix=()):
    """Runs the tests that a pattern selects. A test that is skipped counts as a failure: it was to run on the device."""
    path = machine.out / f"{log}.json"
    path.unlink(missing_ok=True)
    code, output = machine.call([*prefix, machine.program(program), f"--gtest_filter={pattern}", f"--gtest_output=json:{path}"],
                                clock, log)
    tests = read_report(path, program, code, output, log, tests_of)
    wrong = [name for name, test in tests if test.get("failures")]
    left_out = [name for name, test in tests if test.get("result") != "COMPLETED"]
    if not tests:
        raise Failed(f"{program} has no test {pattern}")
    if wrong or left_out or code != 0:
        if len(left_out) == len(tests):
            raise Failed(f"all {len(tests)} tests were skipped; {log}.log has the reason")
        names = wrong or left_out or [f"{program} {how_it_ended(code)}"]
        raise Failed(f"{len(wrong)} of {len(tests)} failed, {len(left_out)} were skipped: {', '.join(names[:3])}; see {log}.log")
    return output, len(tests)


def on_device(machine, on_cuda, guarded):
    return on_cuda if machine.device == "cuda" else guarded


def kernels(machine, clock):
    _, count = run_gtest(machine, clock, "kernels_cuda_test", on_device(machine, "*/Cuda", "*/CudaOnHost"), "kernels")
    return f"{count} tests: the kernels give the bits of the host", {"tests": count}


def sanitizer(tool):
    def run(machine, clock):
        if machine.device != "cuda":
            raise Skipped("compute-sanitizer looks at kernels on a GPU")
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "99"]
        try:
            output, count = run_gtest(machine, clock, "kernels_cuda_test", "*/Cuda", tool, command)
        except FileNotFoundError:
            raise Skipped("there is no compute-sanitizer on PATH") from None
        if "ERROR SUMMARY: 0 errors" not in output and "RACECHECK SUMMARY: 0 hazards" not in output:
            raise Failed(f"{tool} reports errors; see {tool}.log")
        return f"{tool} finds nothing in {count} tests", {"tests": count}
    return run


def ops(machine, clock):
    _, count = run_gtest(machine, clock, "ops_test", on_device(machine, "OnDevice.*/Cuda*", "OnDevice.*/GuardedLatest*"), "ops")
    return f"{count} tests: the ops give what they give on the CPU", {"tests": count}


def training(machine, clock):
    count = 0
    for program, tests in (("train_test", "CapturedStep.*"), ("saves_test", "OnDevice.TwentySteps*:OnDeviceStep.Other*")):
        count += run_gtest(machine, clock, program, tests, f"training-{program}")[1]
    return f"{count} tests: 20 steps of each family, in fp32 and bf16, and of each optimizer, differ from the CPU's by what rounding makes of them", \
        {"tests": count}


def checkpoints(machine, clock):
    count = 0
    for program, tests in (("saves_test", "OnDeviceCheckpoints.*"), ("run_test", "OnDeviceRuns.ARun*")):
        count += run_gtest(machine, clock, program, tests, f"checkpoints-{program}")[1]
    return f"{count} tests: checkpoints move between CPU and device, and a resumed run has the same bits", {"tests": count}


def smoke(machine, clock):
    if machine.device != "cuda":
        raise Skipped("the program knows no device that the host plays")
    output = machine.check_call([machine.program("athanor"), "smoke", "--device", "cuda"], clock, "smoke")
    return output.strip().split("\n")[-1], {}


def library(machine, clock):
    pattern = on_device(machine, "Nccl.*", "GuardedGroups.*")
    _, count = run_gtest(machine, clock, "comm_test", pattern, "nccl")
    return f"{count} tests: collectives of the device's library", {"tests": count}


def all_parts(gpus=1):
    return one_gpu() + (several_gpus() if gpus > 1 else [])


def several_gpus():
    """After those of one, which are faster to look at if something is wrong."""
    return [
        Part("layouts", "small runs of layouts on several GPUs, compared with one on the CPU", 150, several.check_layouts, least_s=20),
        Part("data-parallel", "steps of OLMo-1B by all GPUs, compared with one", 90, several.data_parallel, least_s=30),
        Part("expert-parallel", "both kinds of dispatch over all GPUs", 90, several.expert_parallel, least_s=30),
        Part("model-parallel", "steps over tensor ranks and pipelines, compared with one GPU", 90, several.model_parallel, least_s=30),
    ]


def one_gpu():
    return [
        Part("kernels", "every kernel compared with the bits of the host", 20, kernels),
        Part("memcheck", "the kernels under compute-sanitizer: accesses out of bounds", 50, sanitizer("memcheck")),
        Part("racecheck", "the kernels under compute-sanitizer: races in shared memory", 45, sanitizer("racecheck")),
        Part("ops", "every op compared with the same op on the CPU", 30, ops),
        Part("nccl", "one rank's collectives through NCCL", 20, library),
        Part("training", "20 steps of each family compared with the CPU", 45, training),
        Part("verify", "athanor verify, whose reference is the CPU", 30, several.verify, least_s=20),
        Part("smoke", "fifty steps of two models", 20, smoke),
        Part("checkpoints", "from the CPU to the device and back", 30, checkpoints),
        Part("program", "a run of the program: CPU, then device, then CPU", 30, checkpoint_round.run),
        Part("kernel-speed", "each kernel as a share of the copy rate", 30, speed.kernels),
        Part("optimizers", "an update of each optimizer in turns with AdamW, and Muon's products", 40, speed.optimizers),
        Part("block", "the sparse block, forward and backward, compared with its roofline", 40, speed.block),
        Part("olmoe-1b-7b", "whole steps, in turns with transformers", 80, speed.step("olmoe-1b-7b"), least_s=40),
        Part("olmoe-half", "whole steps of eight layers of OLMoE-1B-7B, in turns with transformers", 100, speed.step("olmoe-half"),
             least_s=40),
        Part("routing", "learned routing compared with forced uniform, 100 steps", 40, routing_rate.run),
        Part("attention", "what a fixed order of sums costs in attention", 25, speed.attention),
        Part("olmo-1b", "whole steps, in turns with transformers", 80, speed.step("olmo-1b"), least_s=25),
        Part("qwen3-slice", "whole steps of six layers of Qwen3-30B-A3B, in turns with transformers", 80,
             speed.step("qwen3-slice"), least_s=25),
    ]
