#pragma once
// Choices on their way: for each token its K weights (fp32) and expert ids (int32), 8K bytes that travel ahead of it.

#include "moe/dispatch_exchange.h"

namespace athanor::moe {

inline int64_t choice_bytes(int64_t k) { return 8 * k; }

/// Writes the choices of a token into bytes, and reads them.
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

/// out[r] = x[rows[r]] for all rows; x, out [·, D].
void copy_rows(const Tensor& x, const std::vector<int64_t>& rows, const Tensor& out);

}  // namespace athanor::moe
