#pragma once
// Packs a head's rows as factors of products: panels (gemm_pack.h) for a right factor, rows of whole steps
// (gemm_tile.h) for a left factor.

#include <algorithm>
#include <type_traits>

#include "kernels/attention.h"

namespace athanor::kernels {

template <class T, class P>
void pack_head_transposed(const AttentionShape& shape, HeadRows<const T> rows, P* panels) {
  for (int64_t t = 0; t < shape.length; t += kTileColumns, panels += panel_elements<P>(shape.head_dim)) {
    pack_panel_transposed(shape.path, rows.row(t), rows.ld, shape.head_dim, std::min(kTileColumns, shape.length - t),
                          panels);
  }
}

template <class T, class P>
void pack_head(const AttentionShape& shape, HeadRows<const T> rows, P* panels) {
  for (int64_t d = 0; d < shape.head_dim; d += kTileColumns, panels += panel_elements<P>(shape.length)) {
    pack_panel(shape.path, rows.data + d, rows.ld, shape.length, std::min(kTileColumns, shape.head_dim - d), panels);
  }
}

/// Copies the rows [first, first + rows) one after another, each padded with zero to whole steps.
template <class T, class P>
void copy_whole_steps(HeadRows<const T> from, int64_t first, int64_t rows, int64_t width, P* to) {
  const int64_t whole = steps_of<P>(width) * kStep<P>;
  for (int64_t i = 0; i < rows; ++i, to += whole) {
    const T* row = from.row(first + i);
    to[whole - 1] = P{};
    if constexpr (std::is_same_v<T, P>) {
      std::copy_n(row, width, to);
    } else {
      for (int64_t j = 0; j < width; ++j) store(to[j], load(row[j]));
    }
  }
}

}  // namespace athanor::kernels
