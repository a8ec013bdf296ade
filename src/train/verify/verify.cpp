#include "train/verify/verify.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/files.h"
#include "base/log.h"
#include "config/dump.h"
#include "config/toml_reader.h"
#include "train/verify/portable/portable_run.h"
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
  at::set_num_threads(static_cast<int>(std::max<int64_t>(1, config.train.num_threads)));
}

// What bounds follow from: where two layouts shared the work, the one that rounds more.
RunConfig noisiest(const RunConfig& small, const VerifyRequest& request) {
  RunConfig config = small;
  if (!request.then) return config;
  ParallelismConfig& own = config.parallelism;
  const ParallelismConfig& other = request.then->parallelism;
  own.tensor_parallel_degree = std::max(own.tensor_parallel_degree, other.tensor_parallel_degree);
  own.pipeline_parallel_degree = std::max(own.pipeline_parallel_degree, other.pipeline_parallel_degree);
  return config;
}

int most_data_ranks(const RunConfig& small, int num_ranks, const VerifyRequest& request) {
  const int own = Layout(small, num_ranks).data();
  return request.then ? std::max(own, Layout(*request.then, num_ranks).data()) : own;
}

// What rank 0 finds in the traces of one draw, printed. Nothing: a token stood between two experts, so draw again.
std::optional<bool> judge_traces(const RunConfig& small, int num_ranks, const fs::path& folder,
                                 const VerifyRequest& request, bool last_draw) {
  const WholeTrace ours = WholeTrace::read(folder / kLayoutFolder, num_ranks),
                   one = WholeTrace::read(folder / kReferenceFolder, 1);
  Comparisons found = compare_traces(noisiest(small, request), most_data_ranks(small, num_ranks, request), ours, one,
                                     request.reference);
  if (found.near_tie && !last_draw) return std::nullopt;
  std::string second;
  if (request.twice) {
    const auto lines = find_bit_differences(small, ours, WholeTrace::read(folder / kSecondFolder, num_ranks));
    for (const auto& line : lines) found.faults.push_back("a second run of this layout has other bits: " + line);
    if (lines.empty()) second = "a second run of this layout: every bit is equal\n";
  }
  const std::string resumed =
      request.then ? fmt::format("after step {} a checkpoint, resumed as\n{}", (small.train.steps + 1) / 2,
                                 describe_small_run(*request.then, num_ranks))
                   : "";
  fmt::print("{}{}{}{}{}\n", describe_small_run(small, num_ranks), resumed, comparison_table(found, request.reference),
             second, found.faults.empty() ? "PASS" : "FAIL");
  std::fflush(stdout);
  return found.faults.empty();
}

enum Outcome : int64_t { kPassed, kFailed, kDrawAgain };

// Collective. @param folder  of this draw.
Outcome verify_draw(RunConfig small, const VerifyRequest& request, const Mesh& mesh, const fs::path& folder, int draw) {
  small.train.run_dir = (folder / "run").string();  // nothing of this belongs into the user's
  std::unique_ptr<ReferenceProcess> reference;
  if (mesh.is_first()) {
    for (const char* part : {kReferenceFolder, kLayoutFolder, kSecondFolder}) fs::create_directories(folder / part);
    const RunConfig one = make_reference_run(small);
    write_file_atomically(folder / kReferenceFile, dump_run_config(one, false));
    std::vector<std::string> arguments = {"verify", "--as-reference", folder.string(), "--draw", std::to_string(draw)};
    if (request.reference == Reference::kPortable) arguments.insert(arguments.end(), {"--reference", "portable"});
    reference = std::make_unique<ReferenceProcess>(arguments);
  }
  const std::string file = WholeTrace::file_name(mesh.rank());
  const auto data = static_cast<uint64_t>(draw);
  std::optional<Mesh> second;
  if (request.then) second.emplace(Layout(*request.then, mesh.world().size()), mesh.world());
  const auto run = [&](const char* name) {
    if (!second) return trace_run(small, data, &mesh);
    RunConfig then = *request.then;
    small.train.run_dir = (folder / name / "run").string();
    then.train.run_dir = (folder / name / "resumed").string();
    return trace_resumed_run(small, mesh, then, *second, data);
  };
  const Trace trace = run(kLayoutFolder);  // its first collective comes after rank 0 has made the folders
  trace.write(folder / kLayoutFolder / file);
  if (request.twice) run(kSecondFolder).write(folder / kSecondFolder / file);
  mesh.world().all().barrier();  // every trace is written
  Tensor outcome = at::zeros({1}, at::kLong);
  if (reference) {
    reference->wait();
    const auto good = judge_traces(small, mesh.world().size(), folder, request, draw == kMostDraws);
    outcome.fill_(static_cast<int64_t>(!good ? kDrawAgain : *good ? kPassed : kFailed));
  }
  mesh.world().all().broadcast(outcome, 0).wait();
  return static_cast<Outcome>(outcome.item<int64_t>());
}

}  // namespace

int run_verify(const RunConfig& small, const VerifyRequest& request, comm::World& world) {
  const Mesh mesh(Layout(small, world.size()), world);
  const TraceFolder folder(world, request.keep);
  use_threads(small);
  for (int draw = 1;; ++draw) {
    const Outcome outcome = verify_draw(small, request, mesh, folder.path() / fmt::format("draw-{}", draw), draw);
    if (outcome != kDrawAgain) return outcome == kPassed ? 0 : 1;
    if (mesh.is_first()) {
      log::info("data {}: a token stood between two experts, and rounding decided; drawing other data", draw);
    }
  }
}

void run_reference(const fs::path& folder, uint64_t draw, Reference reference) {
  const RunConfig one = load_run_config(folder / kReferenceFile);
  use_threads(one);
  const Trace trace = reference == Reference::kPortable ? trace_portable_run(one, draw) : trace_run(one, draw, nullptr);
  trace.write(folder / kReferenceFolder / WholeTrace::file_name(0));
}

}  // namespace athanor
