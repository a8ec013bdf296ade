#include "verify/record_copies.h"

#include "ops/transfer.h"

namespace athanor::inline verify {

void add_copies(const ModelState& model, int64_t step, Trace& trace) {
  const Tensor compute = ops::fetch(model.parameters.compute());
  const auto size = static_cast<size_t>(compute.element_size());
  const auto* bytes = static_cast<const std::byte*>(compute.const_data_ptr());
  for (const BucketEntry& e : model.parameters.table()) {
    trace.add_copy(fmt::format("step {}: {} from {}", step, e.name, shape_text(e.offset)),
                   bytes + static_cast<size_t>(e.flat_begin) * size, static_cast<size_t>(e.num_elements()) * size);
  }
}

void add_gradient_copies(const ModelState& model, const std::string& what, Trace& trace) {
  const Tensor grads = ops::fetch(model.parameters.grad());
  const auto* grad = grads.const_data_ptr<float>();
  for (const Bucket& bucket : model.parameters.buckets()) {
    const FlatRange owned = model.plan.owned(bucket);
    for (const BucketEntry& e : model.parameters.table()) {
      const FlatRange part = intersect(e.range(), owned);
      if (part.size() == 0) continue;
      const int64_t first = part.begin - e.flat_begin;
      trace.add_copy(fmt::format("{} of {} from {}, elements {} to {}", what, e.name, shape_text(e.offset), first,
                                 first + part.size()),
                     grad + part.begin, static_cast<size_t>(part.size()) * sizeof(float));
    }
  }
}

}  // namespace athanor::inline verify
