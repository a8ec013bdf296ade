#include "watch/slow_ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/text.h"

namespace athanor::inline watch {
namespace {

constexpr double kSlower = 0.15;
constexpr size_t kLeastOfAKind = 3, kMostSlowNamed = 4;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

std::vector<SlowRank> find_slow_ranks(std::span<const double> seconds, std::span<const int> kinds) {
  std::map<int, std::vector<double>> of_kind;
  for (size_t rank = 0; rank < seconds.size(); ++rank)
    if (!std::isnan(seconds[rank])) of_kind[kinds[rank]].push_back(seconds[rank]);
  std::map<int, double> usual;
  for (const auto& [kind, times] : of_kind)
    if (times.size() >= kLeastOfAKind) usual[kind] = median_of(times);
  std::vector<SlowRank> slow;
  for (size_t rank = 0; rank < seconds.size(); ++rank) {
    const auto found = usual.find(kinds[rank]);
    if (found == usual.end() || found->second <= 0) continue;
    const double share = seconds[rank] / found->second - 1;
    if (share > kSlower) slow.push_back({static_cast<int>(rank), share});
  }
  std::ranges::stable_sort(slow, std::greater<>(), &SlowRank::share);
  return slow;
}

bool SlowRanks::compares() const { return mesh_.world().size() >= static_cast<int>(kLeastOfAKind); }

std::string SlowRanks::took(int64_t step, double seconds) {
  if (!compares()) return "";
  if (!std::isnan(seconds)) times_.push_back(seconds);
  if (++num_steps_ < kSteps) return "";
  return compare(step);
}

std::string SlowRanks::compare(int64_t step) {
  num_steps_ = 0;
  const double own = times_.empty() ? std::numeric_limits<double>::quiet_NaN() : median_of(std::exchange(times_, {}));
  comm::Communicator& world = mesh_.host_group(GroupKind::kWorld);
  const Tensor all = at::empty({world.size()}, at::kDouble);
  world.all_gather(all, at::full({1}, own, at::kDouble)).wait();
  std::vector<int> stages;
  for (int rank = 0; rank < world.size(); ++rank) stages.push_back(mesh_.layout().coordinate(rank, Axis::kPipeline));
  const auto slow = find_slow_ranks({all.const_data_ptr<double>(), static_cast<size_t>(world.size())}, stages);
  const bool none_was_named = named_.empty();
  bool is_new = false;
  std::vector<std::string> texts;
  for (auto& [rank, comparisons] : named_) ++comparisons;
  for (const auto& [rank, share] : slow) {
    is_new = named_.insert_or_assign(rank, 0).second || is_new;
    texts.push_back(
        fmt::format("rank {} ({}) {:.0f}%", rank, mesh_.world().hosts()[static_cast<size_t>(rank)], 100 * share));
  }
  std::erase_if(named_, [](const auto& named) { return named.second >= kForgets; });
  if (!is_new)
    return named_.empty() && !none_was_named ? fmt::format("step {}: no rank is slower than the others any more", step)
                                             : "";
  return fmt::format(
      "steps {} to {}: slower than the median of the ranks with the same work, each of which waits for them: {}",
      step - kSteps + 1, step, join_first(texts, kMostSlowNamed));
}

}  // namespace athanor::inline watch
