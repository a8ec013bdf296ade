#pragma once
// Looks at the weights around an update.

#include <cstdint>
#include <vector>

#include "layout/buckets.h"
#include "ops/tensor.h"

namespace athanor::inline train {

/// Each function is called on the thread that trains. None changes what the update does.
class UpdateObserver {
 public:
  virtual ~UpdateObserver() = default;
  /// Called before and after the update of a range of flat memory: at most kUpdateBlock elements, in order. Between the
  /// two calls the optimizer updates this range and nothing else.
  virtual void before_update(FlatRange range) = 0;
  virtual void after_update(FlatRange range) = 0;
  /// Returns numbers of this object, fp64, on the model's device. The host fetches them together with the numbers of
  /// the step; after that they are on the host.
  virtual std::vector<Tensor*> numbers() { return {}; }
};
constexpr int64_t kUpdateBlock = int64_t{1} << 22;  // 16 MiB of fp32

}  // namespace athanor::inline train
