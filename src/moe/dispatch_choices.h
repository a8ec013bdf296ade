#pragma once
// The format in which choices are sent: for each token its K weights (fp32), then its K expert ids (int32), which take
// 8 · K bytes together. The choices of all tokens of a call are sent at once, before the first chunk of tokens.

#include "moe/dispatch_exchange.h"
#include "ops/device_dispatch.h"

namespace athanor::moe {

using ops::device_dispatch::choice_bytes;

/// Read and write the choices of token `row` of `bytes`, which has choice_bytes(k) for each token.
struct ChoiceReader {
  const uint8_t* bytes;
  int64_t k;
  void read(int64_t row, float* weights, int64_t* ids) const;
};
struct ChoiceWriter {
  uint8_t* bytes;
  int64_t k;
  void write(int64_t row, const float* weights, const int64_t* ids) const;
};

/// Sets out[r] = x[rows[r]] for every r; x [·, D], out [number of rows, D], of one type.
void copy_rows(const Tensor& x, const std::vector<int64_t>& rows, const Tensor& out);

}  // namespace athanor::moe
