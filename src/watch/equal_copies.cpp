#include "watch/equal_copies.h"

#include <algorithm>
#include <map>

#include "ops/tensor.h"

namespace athanor::inline watch {

std::optional<UnequalCopies> find_unequal_copies(comm::Communicator& group, std::span<const int64_t> numbers) {
  if (group.size() == 1 || numbers.empty()) return std::nullopt;
  const auto count = std::ssize(numbers);
  const Tensor own = at::empty({count}, at::kLong);
  std::ranges::copy(numbers, own.data_ptr<int64_t>());
  const Tensor bounds = at::stack({own, at::bitwise_not(own)});
  group.all_reduce(bounds, comm::Reduction::kMax).wait();  // the largest, and of the complements: the smallest
  const Tensor differ = bounds[0].ne(at::bitwise_not(bounds[1]));
  if (!differ.any().item<bool>()) return std::nullopt;
  UnequalCopies found{.index = static_cast<size_t>(differ.to(at::kLong).argmax().item<int64_t>())};
  const Tensor all = at::empty({group.size()}, at::kLong);
  group.all_gather(all, own.narrow(0, static_cast<int64_t>(found.index), 1).clone()).wait();
  const std::span values(all.const_data_ptr<int64_t>(), static_cast<size_t>(group.size()));
  std::map<int64_t, int64_t> holders;
  for (const int64_t value : values) ++holders[value];
  const auto most = std::ranges::max_element(holders, {}, [](const auto& each) { return each.second; });
  found.is_known = 2 * most->second > group.size();
  for (int rank = 0; rank < group.size(); ++rank)
    if (!found.is_known || values[static_cast<size_t>(rank)] != most->first) found.wrong_ranks.push_back(rank);
  return found;
}

}  // namespace athanor::inline watch
