#include "train/verify/verify.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "config/dump.h"
#include "config/toml_reader.h"
#include "train/verify/plants/names.h"
#include "train/verify/plants/plant.h"
#include "train/verify/reference_process.h"
#include "train/verify/report.h"
#include "train/verify/traced_run.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

constexpr const char* kReferenceFile = "one_rank.toml";
constexpr const char* kReferenceFolder = "one_rank";
constexpr const char* kLayoutFolder = "layout";
constexpr const char* kSecondFolder = "layout_again";
constexpr int kMostDraws = 3;

// The text of rank 0, on every rank.
std::string broadcast_text(comm::World& world, const std::string& text) {
  Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  world.all().broadcast(length, 0).wait();
  Tensor bytes = at::empty({length.item<int64_t>()}, at::kByte);
  if (world.rank() == 0) std::copy_n(text.data(), text.size(), static_cast<char*>(bytes.data_ptr()));
  world.all().broadcast(bytes, 0).wait();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

// The folder of the traces, which all ranks see. It goes away again, unless it is to be kept.
class TraceFolder {
 public:
  TraceFolder(comm::World& world, const fs::path& keep) : kept_(!keep.empty()), first_(world.rank() == 0) {
    std::string name = keep.string();
    if (first_ && !kept_) name = make_temporary(world);
    path_ = broadcast_text(world, name);
  }
  ~TraceFolder() {
    std::error_code ignored;
    if (first_ && !kept_) fs::remove_all(path_, ignored);
  }
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  static std::string make_temporary(comm::World& world) {
    const bool one_host = std::ranges::all_of(world.hosts(), [&](const auto& host) { return host == world.host(); });
    const fs::path parent = one_host ? fs::temp_directory_path() : fs::current_path();
    std::string name = (parent / "athanor-verify-XXXXXX").string();
    if (!::mkdtemp(name.data())) fail_errno("cannot make", name);
    return name;
  }

  fs::path path_;
  bool kept_, first_;
};

// A small model has nothing for more threads.
void use_threads(const RunConfig& config) {
  at::set_num_threads(thread_count("train.num_threads", std::max<int64_t>(1, config.train.num_threads)));
}

// What rank 0 finds in the traces of one draw, printed. Nothing: a token stood between two experts, so draw again.
std::optional<bool> judge_traces(const RunConfig& small, int num_ranks, const fs::path& folder, bool twice,
                                 bool last_draw) {
  const Layout layout(small, num_ranks);
  const WholeTrace ours = WholeTrace::read(folder / kLayoutFolder, num_ranks),
                   one = WholeTrace::read(folder / kReferenceFolder, 1);
  Comparisons found = compare_traces(small, layout.data(), ours, one);
  if (found.near_tie && !last_draw) return std::nullopt;
  std::string second;
  if (twice) {
    const auto lines = find_bit_differences(small, ours, WholeTrace::read(folder / kSecondFolder, num_ranks));
    for (const auto& line : lines) found.faults.push_back("a second run of this layout has other bits: " + line);
    if (lines.empty()) second = "a second run of this layout: every bit is equal\n";
  }
  fmt::print("{}{}{}{}\n", describe_small_run(small, num_ranks), comparison_table(found), second,
             found.faults.empty() ? "PASS" : "FAIL");
  std::fflush(stdout);
  return found.faults.empty();
}

enum Outcome : int64_t { kPassed, kFailed, kDrawAgain };

// Collective. @param folder  of this draw. @param plant  may be null.
Outcome verify_draw(RunConfig small, const VerifyRequest& request, const Mesh& mesh, const fs::path& folder, int draw,
                    plants::Plant* plant) {
  small.train.run_dir = (folder / "run").string();  // nothing of this belongs into the user's
  std::unique_ptr<ReferenceProcess> reference;
  if (mesh.is_first()) {
    for (const char* part : {kReferenceFolder, kLayoutFolder, kSecondFolder}) fs::create_directories(folder / part);
    const RunConfig one = make_reference_run(small);
    write_file_atomically(folder / kReferenceFile, dump_run_config(one, false));
    reference = std::make_unique<ReferenceProcess>(
        std::vector<std::string>{"verify", "--reference", folder.string(), "--draw", std::to_string(draw)});
  }
  const std::string file = WholeTrace::file_name(mesh.rank());
  const auto data = static_cast<uint64_t>(draw);
  const Trace trace =
      trace_run(small, data, &mesh, plant);  // its first collective comes after rank 0 has made the folders
  trace.write(folder / kLayoutFolder / file);
  if (request.twice) trace_run(small, data, &mesh, plant).write(folder / kSecondFolder / file);
  mesh.world().all().barrier();  // every trace is written
  Tensor outcome = at::zeros({1}, at::kLong);
  if (reference) {
    reference->wait();
    const auto good = judge_traces(small, mesh.world().size(), folder, request.twice, draw == kMostDraws);
    outcome.fill_(static_cast<int64_t>(!good ? kDrawAgain : *good ? kPassed : kFailed));
  }
  mesh.world().all().broadcast(outcome, 0).wait();
  return static_cast<Outcome>(outcome.item<int64_t>());
}

// A fault that nothing met proves nothing. Collective.
void refuse_idle(const std::string& name, const plants::Plant& plant, comm::World& world) {
  const Tensor times = at::full({1}, plant.times(), at::kLong);
  world.all().all_reduce(times).wait();
  ATHANOR_CHECK(times.item<int64_t>() > 0, "--plant {}: this layout has nothing for it; it needs {}", name,
                plants::find_plant(name)->needs);
}

}  // namespace

int run_verify(const RunConfig& small, const VerifyRequest& request, comm::World& real_world) {
  const std::unique_ptr<plants::Plant> plant = request.plant.empty() ? nullptr : plants::make_plant(request.plant);
  const std::unique_ptr<comm::World> planted = plant ? plants::planted_world(real_world, *plant) : nullptr;
  comm::World& world = planted ? *planted : real_world;
  const Mesh mesh(Layout(small, world.size()), world);
  if (plant && mesh.is_first())
    log::warn("planted on purpose: {}: {}", request.plant, plants::find_plant(request.plant)->does);
  const TraceFolder folder(world, request.keep);
  use_threads(small);
  for (int draw = 1;; ++draw) {
    const Outcome outcome =
        verify_draw(small, request, mesh, folder.path() / fmt::format("draw-{}", draw), draw, plant.get());
    if (plant) refuse_idle(request.plant, *plant, world);
    if (outcome != kDrawAgain) return outcome == kPassed ? 0 : 1;
    if (mesh.is_first()) {
      log::info("data {}: a token stood between two experts, and rounding decided; drawing other data", draw);
    }
  }
}

void run_reference(const fs::path& folder, uint64_t draw) {
  const RunConfig one = load_run_config(folder / kReferenceFile);
  use_threads(one);
  trace_run(one, draw, nullptr).write(folder / kReferenceFolder / WholeTrace::file_name(0));
}

}  // namespace athanor
