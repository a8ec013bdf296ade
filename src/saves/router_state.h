#pragma once
// Converts the values that routers carry from step to step in addition to their weights (previous shares, biases)
// between their forms in memory and in a checkpoint.

#include "checkpoint/router_rows.h"
#include "ops/tensor.h"

namespace athanor::inline saves {

/// Returns the rows as a tensor [layers, experts], fp32.
Tensor tensor_of(const RouterRows& rows);
RouterRows rows_of(const Tensor& tensor_LE);

}  // namespace athanor::inline saves
