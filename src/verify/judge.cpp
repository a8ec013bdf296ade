#include "verify/judge.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "verify/measured.h"
#include "verify/report.h"
#include "verify/trace_folder.h"

namespace athanor::inline verify {
namespace fs = std::filesystem;
namespace {

// Bounds follow from this configuration: if two layouts shared the work, from the one that rounds more.
RunConfig noisiest(const TypedRun& run) {
  RunConfig config = run.small;
  if (!run.then) return config;
  ParallelismConfig& own = config.parallelism;
  const ParallelismConfig& other = run.then->parallelism;
  own.tensor_parallel_degree = std::max(own.tensor_parallel_degree, other.tensor_parallel_degree);
  own.pipeline_parallel_degree = std::max(own.pipeline_parallel_degree, other.pipeline_parallel_degree);
  return config;
}

int most_data_ranks(const TypedRun& run, int num_ranks) {
  const int own = Layout(run.small, num_ranks).data();
  return run.then ? std::max(own, Layout(*run.then, num_ranks).data()) : own;
}

// Returns "equal", or a fault for each difference of bits.
std::string compare_with_second(const RunConfig& small, const WholeTrace& ours, const fs::path& folder, int num_ranks,
                                std::vector<std::string>& faults) {
  const auto lines = find_bit_differences(small, ours, WholeTrace::read(folder / kSecondFolder, num_ranks));
  for (const auto& line : lines) faults.push_back("a second run of this layout has other bits: " + line);
  return lines.empty() ? "a second run of this layout: every bit is equal\n" : "";
}

void print_findings(const TypedRun& run, Reference reference, int num_ranks, const Comparisons& found,
                    const std::string& second) {
  const std::string resumed =
      run.then ? fmt::format("after step {} a checkpoint, resumed as\n{}", (run.small.train.steps + 1) / 2,
                             describe_small_run(*run.then, num_ranks))
               : "";
  fmt::print("{}{}{}{}", describe_small_run(run.small, num_ranks), resumed, comparison_table(found, reference), second);
  std::fflush(stdout);
}

}  // namespace

Outcome judge_bounded(const TypedRun& run, const VerifyRequest& request, int num_ranks, const fs::path& root, int draw,
                      bool last) {
  const fs::path folder = root / draw_folder(draw);
  const WholeTrace ours = WholeTrace::read(folder / kLayoutFolder, num_ranks),
                   one = WholeTrace::read(folder / kReferenceFolder, 1);
  Comparisons found =
      compare_traces(noisiest(run), most_data_ranks(run, num_ranks), ours, one, request.reference, request.device);
  if (found.near_tie && !last) return kDrawAgain;
  const std::string second = request.twice ? compare_with_second(run.small, ours, folder, num_ranks, found.faults) : "";
  print_findings(run, request.reference, num_ranks, found, second);
  return found.faults.empty() ? kPassed : kFailed;
}

Outcome judge_measured(const TypedRun& run, const VerifyRequest& request, int num_ranks, const fs::path& root,
                       int first, Suspects& suspects) {
  MeasuredComparison comparison(noisiest(run), most_data_ranks(run, num_ranks), request.device);
  std::vector<std::string> faults;
  std::string note;
  for (int draw = first; draw < first + request.draws; ++draw) {
    const fs::path folder = root / draw_folder(draw);
    const WholeTrace ours = WholeTrace::read(folder / kLayoutFolder, num_ranks);
    comparison.add(ours, WholeTrace::read(folder / kReferenceFolder, 1), WholeTrace::read(folder / kTruthFolder, 1));
    if (request.twice) note = compare_with_second(run.small, ours, folder, num_ranks, faults);
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
  print_findings(run, request.reference, num_ranks, found, note);
  return found.faults.empty() ? kPassed : kFailed;
}

}  // namespace athanor::inline verify
