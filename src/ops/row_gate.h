#pragma once
// A gate for each row, as the shared expert of Qwen2-MoE has it.

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns σ(gate [..., 1]) · x [..., width], fp32 inside. Both are kept for backward.
Tensor row_gate(const Tensor& x, const Tensor& gate);

namespace portable {
Tensor row_gate(const Tensor& x, const Tensor& gate);
}  // namespace portable

}  // namespace athanor::ops
