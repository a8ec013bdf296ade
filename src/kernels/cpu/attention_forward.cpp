#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention_pack.h"
#include "kernels/gemm_tile.h"
#include "kernels/softmax_tile.h"

namespace athanor::kernels {
namespace {

// The number of keys in one round of the online softmax: whole tiles of rows and of columns. A tile's scores (18 KiB)
// and weights stay in the first-level cache.
constexpr int64_t kKeys = 384;

constexpr int64_t aligned(int64_t bytes) { return divide_up(bytes, kPanelAlignment) * kPanelAlignment; }

// The memory of a tile, taken from scratch.
template <class P>
struct Workspace {
  float *scores, *out;
  P *weights, *queries;

  Workspace(const AttentionShape& shape, void* scratch) {
    const auto start = reinterpret_cast<uintptr_t>(scratch);
    uintptr_t next = start;
    const auto take = [&](int64_t bytes) {
      const uintptr_t at = next;
      next += static_cast<uintptr_t>(aligned(bytes));
      return at;
    };
    scores = reinterpret_cast<float*>(take(kTileRows * kKeys * 4));
    out = reinterpret_cast<float*>(take(divide_up(shape.head_dim, kTileColumns) * kTileElements * 4));
    weights = reinterpret_cast<P*>(take(kTileRows * kKeys * static_cast<int64_t>(sizeof(P))));
    queries = reinterpret_cast<P*>(take(kTileRows * steps_of<P>(shape.head_dim) * 4));
    size = static_cast<int64_t>(next - start);
  }
  int64_t size;
};

template <class T, class P>
class QueryTile {
 public:
  QueryTile(const AttentionShape& shape, const PackedHead& own, std::span<const PackedHead> before, void* scratch)
      : shape_(shape), own_(own), before_(before), work_(shape, scratch), dim_steps_(steps_of<P>(shape.head_dim)),
        dim_tiles_(divide_up(shape.head_dim, kTileColumns)) {}

  void run(HeadRows<const T> q, HeadRows<T> out, float* logsumexp, float* largest, int64_t first, int64_t rows) {
    copy_whole_steps(q, first, rows, shape_.head_dim, work_.queries);
    std::fill_n(softmax_.largest, kTileRows, shape_.sink);
    std::fill_n(softmax_.sum, kTileRows, shape_.sink > -HUGE_VALF ? 1.0f : 0.0f);
    is_first_ = true;
    for (const PackedHead& all : before_) {
      for (int64_t key = 0; key < all.length; key += kKeys)
        add_keys(all, rows, key, std::min(all.length, key + kKeys), {all.length - key, 0});
    }
    // Keys from the first that the first query sees, in whole tiles, up to the last that the last query sees. So each
    // query sees a key of the first round.
    const int64_t begin = shape_.window > 0 ? std::max<int64_t>(0, first + 1 - shape_.window) : 0, end = first + rows;
    for (int64_t key = begin / kTileColumns * kTileColumns; key < end; key += kKeys)
      add_keys(own_, rows, key, std::min(end, key + kKeys), seen_of(first, key));
    float inverse[kTileRows];
    for (int64_t i = 0; i < rows; ++i) {
      inverse[i] = 1.0f / softmax_.sum[i];
      logsumexp[first + i] = softmax_.largest[i] + std::log(softmax_.sum[i]);
      if (largest) largest[first + i] = softmax_.largest[i];
    }
    scale_tiles(work_.out, rows, dim_tiles_, inverse);
    for (int64_t d = 0; d < dim_tiles_; ++d) {
      store_tile(work_.out + d * kTileElements, rows, std::min(kTileColumns, shape_.head_dim - d * kTileColumns),
                 out.row(first) + d * kTileColumns, out.ld);
    }
  }

 private:
  // What the tile's rows, from query `first` on, see of the keys from `key` on.
  SeenColumns seen_of(int64_t first, int64_t key) const {
    SeenColumns seen{first + 1 - key};
    if (shape_.window > 0) seen.begin = seen.end - shape_.window;
    return seen;
  }

  void add_keys(const PackedHead& from, int64_t rows, int64_t key, int64_t end, SeenColumns seen) {
    const int64_t tiles = divide_up(end - key, kTileColumns);
    const P* panel =
        static_cast<const P*>(from.keys_transposed) + key / kTileColumns * panel_elements<P>(shape_.head_dim);
    for (int64_t t = 0; t < tiles; ++t, panel += panel_elements<P>(shape_.head_dim)) {
      gemm_tile(shape_.path, rows, work_.queries, dim_steps_ * kStep<P>, kStep<P>, panel, dim_steps_,
                work_.scores + t * kTileElements, false);
    }
    const bool caps = shape_.soft_cap > 0;
    if (caps) cap_tiles(work_.scores, rows, tiles, shape_.scale, shape_.soft_cap, nullptr);
    float rescale[kTileRows];
    softmax_tiles(work_.scores, rows, tiles, seen, caps ? 1 : shape_.scale, softmax_, rescale, work_.weights, kKeys);
    if (!is_first_) scale_tiles(work_.out, rows, dim_tiles_, rescale);
    const P* values = static_cast<const P*>(from.values) + key * kTileColumns;  // whole steps
    for (int64_t d = 0; d < dim_tiles_; ++d, values += panel_elements<P>(from.length)) {
      gemm_tile(shape_.path, rows, work_.weights, kKeys, kStep<P>, values, steps_of<P>(end - key),
                work_.out + d * kTileElements, !is_first_);
    }
    is_first_ = false;
  }

  const AttentionShape& shape_;
  PackedHead own_;
  std::span<const PackedHead> before_;
  Workspace<P> work_;
  int64_t dim_steps_, dim_tiles_;
  bool is_first_ = true;  // no keys have been added to the tile's sums yet
  SoftmaxRows softmax_{};
};

}  // namespace

template <class T>
int64_t packed_transposed_bytes(const AttentionShape& shape) {
  return with_packed<T>(shape.path, [&]<class P>(P*) {
    return divide_up(shape.length, kTileColumns) * panel_elements<P>(shape.head_dim) * static_cast<int64_t>(sizeof(P));
  });
}
template <class T>
int64_t packed_bytes(const AttentionShape& shape) {
  return with_packed<T>(shape.path, [&]<class P>(P*) {
    return divide_up(shape.head_dim, kTileColumns) * panel_elements<P>(shape.length) * static_cast<int64_t>(sizeof(P));
  });
}

template <class T>
void pack_transposed(const AttentionShape& shape, HeadRows<const T> rows, void* panels) {
  with_packed<T>(shape.path, [&]<class P>(P*) { pack_head_transposed(shape, rows, static_cast<P*>(panels)); });
}

template <class T>
void pack(const AttentionShape& shape, HeadRows<const T> rows, void* panels) {
  with_packed<T>(shape.path, [&]<class P>(P*) { pack_head(shape, rows, static_cast<P*>(panels)); });
}

template <class T>
void attention_forward(const AttentionShape& shape, HeadRows<const T> q, const void* keys_transposed,
                       const void* values, HeadRows<T> out, float* logsumexp, float* largest, int64_t begin,
                       int64_t end, void* scratch, std::span<const PackedHead> before) {
  with_packed<T>(shape.path, [&]<class P>(P*) {
    QueryTile<T, P> tile(shape, {keys_transposed, values, shape.length}, before, scratch);
    for (int64_t first = begin; first < end; first += kTileRows)
      tile.run(q, out, logsumexp, largest, first, std::min(kTileRows, end - first));
  });
}

template <class T>
int64_t attention_forward_scratch(const AttentionShape& shape) {
  return with_packed<T>(shape.path, [&]<class P>(P*) { return Workspace<P>(shape, nullptr).size; });
}

#define ATHANOR_ATTENTION_FORWARD(T)                                                                                  \
  template int64_t packed_transposed_bytes<T>(const AttentionShape&);                                                 \
  template int64_t packed_bytes<T>(const AttentionShape&);                                                            \
  template void pack_transposed<T>(const AttentionShape&, HeadRows<const T>, void*);                                  \
  template void pack<T>(const AttentionShape&, HeadRows<const T>, void*);                                             \
  template void attention_forward<T>(const AttentionShape&, HeadRows<const T>, const void*, const void*, HeadRows<T>, \
                                     float*, float*, int64_t, int64_t, void*, std::span<const PackedHead>);           \
  template int64_t attention_forward_scratch<T>(const AttentionShape&);
ATHANOR_ATTENTION_FORWARD(float)
ATHANOR_ATTENTION_FORWARD(Bf16)

}  // namespace athanor::kernels
