#pragma once
// device_dispatch.h in torch ops, for a device without our kernels.

#include "ops/device_dispatch.h"

namespace athanor::ops::device_dispatch::without_kernels {

SortedRows sort_rows(const HopTokens& tokens, const PeersOfHop& peers, int64_t most_rows, int64_t room);
void count_rows(const HopTokens& tokens, const PeersOfHop& peers, const Tensor& counts);
RowOrder order_rows(const Tensor& counts, int64_t peers, int64_t chunks, int64_t most_rows);
Tensor pack_choices(const Tensor& weights_RK, const Tensor& ids_RK);
Tensor pack_choices(const Tensor& weights_TK, const Tensor& ids_TK, const SortedRows& rows, const Tensor& by_chunk);
Unpacked unpack_choices(const Tensor& bytes, const Tensor& by_chunk);
void sum_rows(const Tensor& parts, const Tensor& row_of, int64_t first_row, const Tensor& out_TD);
Tensor take_weight_gradients(const Tensor& rows, const HopTokens& tokens, const PeersOfHop& peers,
                             const Tensor& row_of);

}  // namespace athanor::ops::device_dispatch::without_kernels
