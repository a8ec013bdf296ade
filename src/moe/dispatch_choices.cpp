#include "moe/dispatch_choices.h"

#include <cstring>

#include "kernels/routing.h"
#include "ops/played.h"

namespace athanor::moe {

void ChoiceReader::read(int64_t row, float* weights, int64_t* ids) const {
  const uint8_t* from = bytes + row * choice_bytes(k);
  std::memcpy(weights, from, static_cast<size_t>(4 * k));
  for (int64_t j = 0; j < k; ++j) {
    int32_t id;
    std::memcpy(&id, from + 4 * (k + j), 4);
    ids[j] = id;
  }
}

void ChoiceWriter::write(int64_t row, const float* weights, const int64_t* ids) const {
  uint8_t* to = bytes + row * choice_bytes(k);
  std::memcpy(to, weights, static_cast<size_t>(4 * k));
  for (int64_t j = 0; j < k; ++j) {
    const auto id = static_cast<int32_t>(ids[j]);
    std::memcpy(to + 4 * (k + j), &id, 4);
  }
}

void copy_rows(const Tensor& x, const std::vector<int64_t>& rows, const Tensor& out) {
  const int64_t width = x.size(1);
  ATHANOR_ASSERT(out.size(0) == static_cast<int64_t>(rows.size()) && out.size(1) == width);
  if (ops::played("gather_rows", {out}, {out})) return;
  ops::with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T* from = ops::pointer<T>(x);
    T* to = ops::pointer<T>(out);
    ops::for_rows(out.size(0), width, [&](int64_t begin, int64_t end) {
      kernels::gather_rows(from, rows.data(), to, begin, end, /*k=*/1, width);
    });
  });
}

}  // namespace athanor::moe
