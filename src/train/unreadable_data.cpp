#include "train/unreadable_data.h"

#include "base/failure.h"
#include "ops/tensor.h"

namespace athanor::inline train {

std::string describe_read_error(const std::exception_ptr& own) { return own ? describe_failure(own).message : ""; }

void agree_on_reading(comm::Communicator& world, const std::exception_ptr& own) {
  // The lowest rank that failed has the largest number.
  const Tensor number = at::full({1}, own ? world.size() - world.rank() : 0, at::kLong);
  world.all_reduce(number, comm::Reduction::kMax).wait();
  const auto first = static_cast<int>(number.item<int64_t>());
  if (first > 0) throw UnreadableData(world.size() - first, describe_read_error(own));
}

}  // namespace athanor::inline train
