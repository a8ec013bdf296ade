#pragma once
// The format in which choices are sent: for each token its K weights (fp32) and expert ids (int32), 8K bytes that are
// sent before the token.

#include "moe/dispatch_exchange.h"

namespace athanor::moe {

inline int64_t choice_bytes(int64_t k) { return 8 * k; }

/// Read and write the choices of a token as bytes.
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

/// Sets out[r] = x[rows[r]] for all rows; x, out [·, D].
void copy_rows(const Tensor& x, const std::vector<int64_t>& rows, const Tensor& out);

}  // namespace athanor::moe
