#include "optim/optimizer.h"

#include "base/error.h"
#include "ops/flat_memory.h"

namespace athanor::inline optim {

Optimizer::Optimizer(OptimizerDeclaration declaration, OptimizedParameters parameters)
    : declaration_(std::move(declaration)), parameters_(std::move(parameters)) {
  for (const StateKind& kind : declaration_.state) {
    const int64_t size = kind.extent == StateKind::Extent::kElement  ? parameters_.state_size()
                         : kind.extent == StateKind::Extent::kMatrix ? parameters_.num_matrices()
                                                                     : 1;
    const auto type = kind.type == StateType::kBFloat16 ? at::kBFloat16 : at::kFloat;
    state_.push_back({kind, ops::flat_zeros(size, type, parameters_.store().compute().device())});
  }
}

const Tensor& Optimizer::state(const std::string& kind) const {
  for (const HeldState& held : state_) {
    if (held.kind.name == kind) return held.values;
  }
  fail<Error>("bug: optimizer {} keeps no state {}", declaration_.name, kind);
}

}  // namespace athanor::inline optim
