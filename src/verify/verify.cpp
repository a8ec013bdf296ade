#include "verify/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "config/dump.h"
#include "config/precision.h"
#include "config/toml_reader.h"
#include "ops/device_traits.h"
#include "verify/judge.h"
#include "verify/plants/names.h"
#include "verify/plants/plant.h"
#include "verify/portable/portable_run.h"
#include "verify/reference_process.h"
#include "verify/report.h"
#include "verify/small_model.h"
#include "verify/trace_folder.h"
#include "verify/traced_run.h"

namespace athanor::inline verify {
namespace fs = std::filesystem;
namespace {

constexpr int kMostDraws = 5;

// A small model has no work for more threads.
void use_threads(const RunConfig& config) {
  at::set_num_threads(thread_count("train.num_threads", std::max<int64_t>(1, config.train.num_threads)));
}

// What a verification runs in: the world and mesh of the layout, with the faults planted there.
struct Ground {
  const VerifyRequest& request;
  Mesh& mesh;
  plants::Plant* plant;
  const fs::path& root;  // folder of this type's traces
};

Mesh mesh_of(const RunConfig& config, const VerifyRequest& request, comm::World& world) {
  Mesh mesh(Layout(config, world.size()), world);
  mesh.use(request.device, config.parallelism.device_sums);
  return mesh;
}

// Traces the layout's run on one data set, into the folder `name` of that set.
void trace_layout(const TypedRun& run, const Ground& ground, int draw, const char* name) {
  const fs::path folder = ground.root / draw_folder(draw) / name;
  const auto data = static_cast<uint64_t>(draw);
  RunConfig small = run.small;
  small.train.run_dir = (folder / "run").string();  // no file of this belongs into the user's folder
  const auto trace = [&] {
    const at::Device device = ground.request.device;
    if (!run.then) return trace_run(small, data, &ground.mesh, ground.plant, device);
    RunConfig then = *run.then;
    then.train.run_dir = (folder / "resumed").string();
    Mesh second = mesh_of(then, ground.request, ground.mesh.world());
    return trace_resumed_run(small, ground.mesh, then, second, data, device);
  };
  trace().write(folder / WholeTrace::file_name(ground.mesh.rank()));
}

// Rank 0 makes the folders before any collective.
void make_folders(const Ground& ground, int first, int count) {
  for (int draw = first; draw < first + count; ++draw) {
    for (const char* part : {kReferenceFolder, kTruthFolder, kLayoutFolder, kSecondFolder})
      fs::create_directories(ground.root / draw_folder(draw) / part);
  }
}

// Rank 0 makes the reference in the folder of the layout's traces. The others wait as long as the process computes.
void take_reference(const RunConfig& small, const Ground& ground, int first, int count) {
  const fs::path& root = ground.root;
  comm::World& world = ground.mesh.world();
  const RunConfig one = make_reference_run(small);
  write_file_atomically(root / kReferenceFile, dump_run_config(one, false));
  if (is_measured(small)) write_file_atomically(root / kTruthFile, dump_run_config(make_truth_run(one), false));
  if (ground.request.same_process)
    return run_reference(root, world.size(), static_cast<uint64_t>(first), static_cast<uint64_t>(count),
                         ground.request.reference);
  std::vector<std::string> arguments = {
      "verify", "--as-reference",      root.string(), "--of-ranks",         std::to_string(world.size()),
      "--draw", std::to_string(first), "--draws",     std::to_string(count)};
  if (ground.request.reference == Reference::kPortable) arguments.insert(arguments.end(), {"--reference", "portable"});
  ReferenceProcess(arguments).wait([&] { world.note_work(1); });
}

// Gives rank 0's outcome to every rank. Collective.
Outcome share_outcome(const Mesh& mesh, Outcome of_first) {
  const Tensor outcome = at::full({1}, static_cast<int64_t>(of_first), at::kLong);
  mesh.world().all().broadcast(outcome, 0).wait();
  return static_cast<Outcome>(outcome.item<int64_t>());
}

// A plant that never acted proves nothing. Collective.
void refuse_idle(const std::string& name, const plants::Plant& plant, comm::World& world) {
  const Tensor times = at::full({1}, plant.times(), at::kLong);
  world.all().all_reduce(times).wait();
  ATHANOR_CHECK(times.item<int64_t>() > 0, "--plant {}: this layout has nothing for it; it needs {}", name,
                plants::find_plant(name)->needs);
}

// Verifies draws [first, first + count) at once. Collective.
Outcome verify_draws(const TypedRun& run, const Ground& ground, int first, int count, Suspects& suspects) {
  const auto& [request, mesh, plant, root] = ground;
  if (mesh.is_first()) make_folders(ground, first, count);
  mesh.world().all().barrier();
  for (int draw = first; draw < first + count; ++draw) {
    trace_layout(run, ground, draw, kLayoutFolder);
    if (request.twice) trace_layout(run, ground, draw, kSecondFolder);
  }
  if (plant) refuse_idle(request.plant, *plant, mesh.world());
  mesh.world().all().barrier();  // so that every trace is written
  Outcome outcome = kPassed;
  if (mesh.is_first()) {
    take_reference(run.small, ground, first, count);
    const int num_ranks = mesh.world().size();
    outcome = is_measured(run.small) ? judge_measured(run, request, num_ranks, root, first, suspects)
                                     : judge_bounded(run, request, num_ranks, root, first, first == kMostDraws);
  }
  return share_outcome(mesh, outcome);
}

struct TypeVerdict {
  std::string dtype;
  int last_draw = 1;
  bool passed = false;
};

// Verifies one type. Collective.
TypeVerdict verify_type(const TypedRun& run, const VerifyRequest& request, comm::World& world, plants::Plant* plant,
                        const fs::path& root) {
  Mesh mesh = mesh_of(run.small, request, world);
  const Ground ground{request, mesh, plant, root};
  const std::string& dtype = run.small.train.dtype;
  const bool measured = is_measured(run.small);
  const int count = measured ? request.draws : 1;
  Suspects suspects;
  for (int first = 1;; first += count) {
    const Outcome outcome = verify_draws(run, ground, first, count, suspects);
    if (outcome != kDrawAgain) return {dtype, first + count - 1, outcome == kPassed};
    if (!mesh.is_first()) continue;
    if (measured) {
      log::info("data 1 to {}: {} comparisons failed; drawing other data to see whether they fail again", count,
                suspects.size());
    } else {
      log::info("data {}: a token stood between two experts, and rounding decided; drawing other data", first);
    }
  }
}

// Returns "PASS: this layout (4 ranks: …) agrees with one rank in float32 (data 1) and bfloat16 (data 1 to 3)"; for a
// layout on devices "… on cuda devices agrees with one rank on the CPU in …".
std::string pass_line(const RunConfig& small, int num_ranks, const VerifyRequest& request,
                      const std::vector<TypeVerdict>& verdicts) {
  std::vector<std::string> agree, differ;
  for (const auto& [dtype, draws, passed] : verdicts) {
    const bool several = number_type(dtype) == NumberType::kBFloat16 && draws > 1;
    (passed ? agree : differ)
        .push_back(
            fmt::format("{} (data {})", dtype, several ? fmt::format("1 to {}", draws) : fmt::format("{}", draws)));
  }
  const ops::DeviceTraits traits = ops::traits_of(request.device);
  const std::string with =
      describe(request.reference) + (request.reference == Reference::kOneRank ? traits.on_host : "");
  std::string text = fmt::format("{}: this layout ({}){}", differ.empty() ? "PASS" : "FAIL",
                                 describe_layout(small, num_ranks), traits.on_devices);
  if (!differ.empty()) text += fmt::format(" differs from {} in {}", with, join(differ, " and "));
  if (!agree.empty())
    text += differ.empty() ? fmt::format(" agrees with {} in {}", with, join(agree, " and "))
                           : fmt::format("; agrees in {}", join(agree, " and "));
  return text + fmt::format("; model seed {}, {} steps", small.train.seed, small.train.steps);
}

}  // namespace

std::vector<std::string> types_to_verify(const RunConfig& config, const std::string& asked, Reference reference) {
  if (reference == Reference::kPortable) {
    ATHANOR_CHECK(asked.empty() || number_type(asked) == NumberType::kFloat32,
                  "verify --reference portable: portable forms bound float32; leave --dtype bfloat16 out, and verify "
                  "bfloat16 without --reference");
    return {name_of(NumberType::kFloat32)};
  }
  if (!asked.empty()) return {asked};
  const NumberType compute = precision_of(config).compute;
  if (compute == NumberType::kFloat32) return {name_of(compute)};
  return {name_of(NumberType::kFloat32), name_of(compute)};
}

int run_verify(const std::vector<TypedRun>& runs, const VerifyRequest& request, comm::World& real_world) {
  const std::unique_ptr<plants::Plant> plant = request.plant.empty() ? nullptr : plants::make_plant(request.plant);
  const std::unique_ptr<comm::World> planted = plant ? plants::planted_world(real_world, *plant) : nullptr;
  comm::World& world = planted ? *planted : real_world;
  if (plant && world.rank() == 0)
    log::warn("planted on purpose: {}: {}", request.plant, plants::find_plant(request.plant)->does);
  const TraceFolder folder(world, request.keep);
  use_threads(runs.front().small);
  std::vector<TypeVerdict> verdicts;
  for (const TypedRun& run : runs)
    verdicts.push_back(verify_type(run, request, world, plant.get(), folder.path() / run.small.train.dtype));
  if (world.rank() == 0) fmt::print("{}\n", pass_line(runs.front().small, world.size(), request, verdicts));
  return std::ranges::all_of(verdicts, &TypeVerdict::passed) ? 0 : 1;
}

void run_reference(const fs::path& folder, int num_ranks, uint64_t first, uint64_t count, Reference reference) {
  for (const auto& [file, part] : {std::pair{kReferenceFile, kReferenceFolder}, {kTruthFile, kTruthFolder}}) {
    if (!fs::exists(folder / file)) continue;
    const RunConfig one = load_run_config(folder / file);
    use_threads(one);
    for (uint64_t draw = first; draw < first + count; ++draw) {
      const fs::path traces = folder / draw_folder(static_cast<int>(draw));
      const WholeTrace layout = WholeTrace::read(traces / kLayoutFolder, num_ranks);
      const Trace trace = reference == Reference::kPortable ? trace_portable_run(one, draw, layout)
                                                            : trace_reference(one, draw, layout);
      trace.write(traces / part / WholeTrace::file_name(0));
    }
  }
}

}  // namespace athanor::inline verify
