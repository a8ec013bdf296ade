#pragma once
// What routers carry from step to step beside their weights, between memory and a checkpoint.

#include "checkpoint/router_rows.h"
#include "ops/tensor.h"

namespace athanor {

/// [layers, experts] fp32.
Tensor tensor_of(const RouterRows& rows);
RouterRows rows_of(const Tensor& tensor_LE);

}  // namespace athanor
