#include "train/verify/verify.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>

#include "base/fault.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "config/dump.h"
#include "config/toml_reader.h"
#include "train/verify/bf16_run.h"
#include "train/verify/measured.h"
#include "train/verify/reference_process.h"
#include "train/verify/report.h"
#include "train/verify/traced_run.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

constexpr const char* kReferenceFile = "one_rank.toml";
constexpr const char* kTruthFile = "truth.toml";
constexpr const char* kReferenceFolder = "one_rank";
constexpr const char* kTruthFolder = "truth";
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

std::string draw_folder(int draw) { return fmt::format("draw-{}", draw); }

// Of the layout's run on one data set.
void trace_layout(RunConfig small, const VerifyRequest& request, const Mesh& mesh, const fs::path& root, int draw) {
  const fs::path folder = root / draw_folder(draw);
  const std::string file = WholeTrace::file_name(mesh.rank());
  const auto data = static_cast<uint64_t>(draw);
  if (fault_planted("tensor.z_loss_lost")) small.moe.router_z_loss_coef = 0;
  const Trace trace = trace_run(small, data, &mesh);  // its first collective comes after rank 0 has made the folders
  trace.write(folder / kLayoutFolder / file);
  if (request.twice) trace_run(small, data, &mesh).write(folder / kSecondFolder / file);
}

// Rank 0's, before anything collective: folders for draws [first, first + count), and the process of one rank.
std::unique_ptr<ReferenceProcess> start_reference(const RunConfig& small, const fs::path& root, int first, int count) {
  for (int draw = first; draw < first + count; ++draw) {
    for (const char* part : {kReferenceFolder, kTruthFolder, kLayoutFolder, kSecondFolder})
      fs::create_directories(root / draw_folder(draw) / part);
  }
  const RunConfig one = make_reference_run(small);
  write_file_atomically(root / kReferenceFile, dump_run_config(one, false));
  if (is_measured(small)) write_file_atomically(root / kTruthFile, dump_run_config(make_truth_run(one), false));
  return std::make_unique<ReferenceProcess>(std::vector<std::string>{
      "verify", "--reference", root.string(), "--draw", std::to_string(first), "--draws", std::to_string(count)});
}

// "equal", or a fault for each difference of bits.
std::string compare_with_second(const RunConfig& small, const WholeTrace& ours, const fs::path& folder, int num_ranks,
                                std::vector<std::string>& faults) {
  const auto lines = find_bit_differences(small, ours, WholeTrace::read(folder / kSecondFolder, num_ranks));
  for (const auto& line : lines) faults.push_back("a second run of this layout has other bits: " + line);
  return lines.empty() ? "a second run of this layout: every bit is equal\n" : "";
}

void print_findings(const RunConfig& small, int num_ranks, const Comparisons& found, const std::string& second) {
  fmt::print("{}{}{}", describe_small_run(small, num_ranks), comparison_table(found), second);
  std::fflush(stdout);
}

enum Outcome : int64_t { kPassed, kFailed, kDrawAgain };

// What rank 0 finds in the traces of one draw, printed, unless a token stood between two experts.
Outcome judge_traces(const RunConfig& small, int num_ranks, const fs::path& folder, bool twice, bool last_draw) {
  const Layout layout(small, num_ranks);
  const WholeTrace ours = WholeTrace::read(folder / kLayoutFolder, num_ranks),
                   one = WholeTrace::read(folder / kReferenceFolder, 1);
  Comparisons found = compare_traces(small, layout.data(), ours, one);
  if (found.near_tie && !last_draw) return kDrawAgain;
  const std::string second = twice ? compare_with_second(small, ours, folder, num_ranks, found.faults) : "";
  print_findings(small, num_ranks, found, second);
  return found.faults.empty() ? kPassed : kFailed;
}

// Measured comparisons that failed on the first data sets, by name.
using Suspects = std::set<std::string>;

// The same of draws [first, first + request.draws) of a run whose noise is measured. What fails must fail on other data
// too. @param suspects  of the draws before these; then, what failed here.
Outcome judge_measured(const RunConfig& small, int num_ranks, const fs::path& root, const VerifyRequest& request,
                       int first, Suspects& suspects) {
  MeasuredComparison comparison(small, Layout(small, num_ranks).data());
  std::vector<std::string> faults;
  std::string note;
  for (int draw = first; draw < first + request.draws; ++draw) {
    const fs::path folder = root / draw_folder(draw);
    const WholeTrace ours = WholeTrace::read(folder / kLayoutFolder, num_ranks);
    comparison.add(ours, WholeTrace::read(folder / kReferenceFolder, 1), WholeTrace::read(folder / kTruthFolder, 1));
    if (request.twice) note = compare_with_second(small, ours, folder, num_ranks, faults);
  }
  auto [found, failed] = comparison.finish();
  const bool again = first > 1;
  if (again) {
    note += fmt::format("{} comparisons failed on data 1 to {}; those that failed on data {} to {} as well count\n",
                        suspects.size(), first - 1, first, first + request.draws - 1);
    std::erase_if(failed, [&](const auto& one) { return !suspects.contains(one.first); });
  }
  found.faults.insert(found.faults.end(), faults.begin(), faults.end());
  if (found.faults.empty() && !again && !failed.empty()) {
    for (const auto& [name, line] : failed) suspects.insert(name);
    return kDrawAgain;
  }
  for (const auto& [name, line] : failed) found.faults.push_back(line);
  print_findings(small, num_ranks, found, note);
  return found.faults.empty() ? kPassed : kFailed;
}

// Rank 0's outcome, on every rank. Collective.
Outcome share_outcome(const Mesh& mesh, Outcome of_first) {
  const Tensor outcome = at::full({1}, static_cast<int64_t>(of_first), at::kLong);
  mesh.world().all().broadcast(outcome, 0).wait();
  return static_cast<Outcome>(outcome.item<int64_t>());
}

// Draws [first, first + count) at once. Collective. @param root  of this type.
Outcome verify_draws(RunConfig small, const VerifyRequest& request, const Mesh& mesh, const fs::path& root, int first,
                     int count, Suspects& suspects) {
  small.train.run_dir = (root / "run").string();  // nothing of this belongs into the user's
  std::unique_ptr<ReferenceProcess> reference;
  if (mesh.is_first()) reference = start_reference(small, root, first, count);
  for (int draw = first; draw < first + count; ++draw) trace_layout(small, request, mesh, root, draw);
  mesh.world().all().barrier();  // every trace is written
  Outcome outcome = kPassed;
  if (reference) {
    reference->wait();
    const int num_ranks = mesh.world().size();
    outcome = is_measured(small)
                  ? judge_measured(small, num_ranks, root, request, first, suspects)
                  : judge_traces(small, num_ranks, root / draw_folder(first), request.twice, first == kMostDraws);
  }
  return share_outcome(mesh, outcome);
}

struct TypeVerdict {
  std::string dtype;
  int last_draw = 1;
  bool passed = false;
};

// Of one type. Collective.
TypeVerdict verify_type(const RunConfig& small, const VerifyRequest& request, comm::World& world,
                        const fs::path& root) {
  const Mesh mesh(Layout(small, world.size()), world);
  const std::string& dtype = small.train.dtype;
  const int count = is_measured(small) ? request.draws : 1;
  Suspects suspects;
  for (int first = 1;; first += count) {
    const Outcome outcome = verify_draws(small, request, mesh, root, first, count, suspects);
    if (outcome != kDrawAgain) return {dtype, first + count - 1, outcome == kPassed};
    if (!mesh.is_first()) continue;
    if (count > 1) {
      log::info("data 1 to {}: {} comparisons failed; drawing other data to see whether they fail again", count,
                suspects.size());
    } else {
      log::info("data {}: a token stood between two experts, and rounding decided; drawing other data", first);
    }
  }
}

// "PASS: this layout (4 ranks: …) agrees with one rank in float32 (data 1) and bfloat16 (data 1 to 3)".
std::string summary(const RunConfig& small, int num_ranks, const std::vector<TypeVerdict>& verdicts) {
  std::vector<std::string> agree, differ;
  for (const auto& [dtype, draws, passed] : verdicts) {
    const bool several = dtype == "bfloat16" && draws > 1;
    (passed ? agree : differ)
        .push_back(
            fmt::format("{} (data {})", dtype, several ? fmt::format("1 to {}", draws) : fmt::format("{}", draws)));
  }
  std::string text =
      fmt::format("{}: this layout ({})", differ.empty() ? "PASS" : "FAIL", describe_layout(small, num_ranks));
  if (!differ.empty()) text += " differs from one rank in " + join(differ, " and ");
  if (!agree.empty())
    text += fmt::format("{} in {}", differ.empty() ? " agrees with one rank" : "; agrees", join(agree, " and "));
  return text + fmt::format("; model seed {}, {} steps", small.train.seed, small.train.steps);
}

}  // namespace

std::vector<std::string> types_to_verify(const RunConfig& config, const std::string& asked) {
  if (!asked.empty()) return {asked};
  if (config.train.dtype == "float32") return {"float32"};
  return {"float32", config.train.dtype};
}

int run_verify(const std::vector<RunConfig>& smalls, const VerifyRequest& request, comm::World& world) {
  const TraceFolder folder(world, request.keep);
  use_threads(smalls.front());
  std::vector<TypeVerdict> verdicts;
  for (const RunConfig& small : smalls)
    verdicts.push_back(verify_type(small, request, world, folder.path() / small.train.dtype));
  if (world.rank() == 0) fmt::print("{}\n", summary(smalls.front(), world.size(), verdicts));
  return std::ranges::all_of(verdicts, &TypeVerdict::passed) ? 0 : 1;
}

void run_reference(const fs::path& folder, uint64_t first, uint64_t count) {
  for (const auto& [file, part] : {std::pair{kReferenceFile, kReferenceFolder}, {kTruthFile, kTruthFolder}}) {
    if (!fs::exists(folder / file)) continue;
    const RunConfig one = load_run_config(folder / file);
    use_threads(one);
    for (uint64_t draw = first; draw < first + count; ++draw) {
      trace_run(one, draw, nullptr)
          .write(folder / draw_folder(static_cast<int>(draw)) / part / WholeTrace::file_name(0));
    }
  }
}

}  // namespace athanor
