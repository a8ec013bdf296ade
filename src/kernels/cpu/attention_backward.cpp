#include <algorithm>

#include "kernels/cpu/attention_pack.h"
#include "kernels/gemm_tile.h"
#include "kernels/softmax_tile.h"

namespace athanor::kernels {
namespace {

// Keys and queries of a block: 8 tiles of rows, 3 of columns. A product over a block's queries then has 48 steps, which
// is enough to outweigh reading and writing its sums.
constexpr int64_t kBackwardBlock = 96;

template <class T, class P>
class Backward {
 public:
  Backward(const AttentionShape& shape, void* scratch)
      : shape_(shape), dim_steps_(steps_of<P>(shape.head_dim)), dim_tiles_(divide_up(shape.head_dim, kTileColumns)),
        start_(reinterpret_cast<uintptr_t>(scratch)), next_(start_) {
    const int64_t transposed = divide_up(shape.length, kTileColumns) * panel_elements<P>(shape.head_dim);
    const int64_t plain = dim_tiles_ * panel_elements<P>(shape.length);
    for (P** panels : {&keys_transposed_, &values_transposed_}) *panels = take<P>(transposed);
    for (P** panels : {&keys_, &queries_, &douts_}) *panels = take<P>(plain);
    for (P** rows : {&query_rows_, &dout_rows_}) *rows = take<P>(shape.length * dim_steps_ * kStep<P>);
    for (float** sums : {&dq_, &dk_, &dv_}) *sums = take<float>(row_tiles() * dim_tiles_ * kTileElements);
    dot_ = take<float>(shape.length);
    for (float** tiles : {&scores_, &dp_}) *tiles = take<float>(kTileRows * kBackwardBlock);
    if (shape.soft_cap > 0) slope_ = take<float>(kTileRows * kBackwardBlock);
    for (P** weights : {&p_steps_, &ds_steps_}) *weights = take<P>(kBackwardBlock * kBackwardBlock);
    ds_rows_ = take<P>(kTileRows * kBackwardBlock);
  }
  int64_t scratch_bytes() const { return static_cast<int64_t>(next_ - start_); }

  void set_keys(HeadRows<const T> k, HeadRows<const T> v) {
    pack_head_transposed(shape_, k, keys_transposed_);
    pack_head_transposed(shape_, v, values_transposed_);
    pack_head(shape_, k, keys_);
  }

  /// The first head of a key starts the sums; the others add to them.
  void add_head(const AttentionQueries<T>& head, bool is_first) {
    pack_head(shape_, head.q, queries_);
    pack_head(shape_, head.dout, douts_);
    copy_whole_steps(head.q, 0, shape_.length, shape_.head_dim, query_rows_);
    copy_whole_steps(head.dout, 0, shape_.length, shape_.head_dim, dout_rows_);
    row_dots(head.dout.data, head.dout.ld, head.out.data, head.out.ld, shape_.length, shape_.head_dim, dot_);
    logsumexp_ = head.logsumexp;
    if (head.sink_gradient) *head.sink_gradient = sink_gradient(head.sink);
    for (int64_t key = 0; key < shape_.length; key += kBackwardBlock) {
      for (int64_t query = key; query < shape_.length && key >= first_key(query); query += kBackwardBlock)
        add_block(key, query, is_first && key == query);
    }
    store_sums(dq_, head.dq);
  }

  void store_keys(HeadRows<T> dk, HeadRows<T> dv) const {
    store_sums(dk_, dk);
    store_sums(dv_, dv);
  }

 private:
  template <class U>
  U* take(int64_t count) {
    const uintptr_t at = next_;
    next_ +=
        static_cast<uintptr_t>(divide_up(count * static_cast<int64_t>(sizeof(U)), kPanelAlignment) * kPanelAlignment);
    return reinterpret_cast<U*>(at);
  }
  int64_t row_tiles() const { return divide_up(shape_.length, kTileRows); }
  int64_t row_width() const { return dim_steps_ * kStep<P>; }

  // The sink's weight is exp(sink − logsumexp), and its value is zero, so that dp is, too.
  float sink_gradient(float sink) const {
    return -sum_over(shape_.length, [&](int64_t t) { return exp_fast(sink - logsumexp_[t]) * dot_[t]; });
  }

  void store_sums(const float* sums, HeadRows<T> out) const {
    for (int64_t tile = 0; tile < row_tiles(); ++tile) {
      const int64_t first = tile * kTileRows, rows = std::min(kTileRows, shape_.length - first);
      for (int64_t d = 0; d < dim_tiles_; ++d) {
        store_tile(sums + (tile * dim_tiles_ + d) * kTileElements, rows,
                   std::min(kTileColumns, shape_.head_dim - d * kTileColumns), out.row(first) + d * kTileColumns,
                   out.ld);
      }
    }
  }

  // Returns the first block of keys that a block of queries sees.
  int64_t first_key(int64_t query) const {
    if (shape_.window == 0) return 0;
    return std::max<int64_t>(0, query + 1 - shape_.window) / kBackwardBlock * kBackwardBlock;
  }

  // Adds keys [key, key + 96) and queries [query, query + 96), or up to the end; on the diagonal they are the same
  // tokens.
  void add_block(int64_t key, int64_t query, bool sums_begin) {
    const int64_t num_queries = std::min(kBackwardBlock, shape_.length - query);
    for (int64_t row = 0; row < num_queries; row += kTileRows)
      add_to_queries(key, query, row, std::min(kTileRows, num_queries - row));
    add_to_keys(key, query, num_queries, sums_begin);
  }

  // Computes scores and their gradient for a tile of queries, from row `row` of the block on, and adds the result to
  // the queries' gradient.
  void add_to_queries(int64_t key, int64_t query, int64_t row, int64_t rows) {
    const bool diagonal = key == query;
    const int64_t first = query + row, num_keys = diagonal ? row + rows : kBackwardBlock,
                  tiles = divide_up(num_keys, kTileColumns);
    const int64_t panel = panel_elements<P>(shape_.head_dim), at = key / kTileColumns * panel;
    const P *q = query_rows_ + first * row_width(), *dout = dout_rows_ + first * row_width();
    for (int64_t t = 0; t < tiles; ++t) {
      gemm_tile(shape_.path, rows, q, row_width(), kStep<P>, keys_transposed_ + at + t * panel, dim_steps_,
                scores_ + t * kTileElements, false);
      gemm_tile(shape_.path, rows, dout, row_width(), kStep<P>, values_transposed_ + at + t * panel, dim_steps_,
                dp_ + t * kTileElements, false);
    }
    SeenColumns seen{first + 1 - key};
    if (shape_.window > 0) seen.begin = seen.end - shape_.window;
    if (slope_) cap_tiles(scores_, rows, tiles, shape_.scale, shape_.soft_cap, slope_);
    softmax_gradient_tiles(scores_, dp_, slope_, rows, tiles, seen, slope_ ? 1 : shape_.scale, logsumexp_ + first,
                           dot_ + first, p_steps_ + row * kBackwardBlock, ds_steps_ + row * kBackwardBlock, ds_rows_,
                           kBackwardBlock);
    const P* keys = keys_ + key * kTileColumns;
    float* dq = dq_ + first / kTileRows * dim_tiles_ * kTileElements;
    for (int64_t d = 0; d < dim_tiles_; ++d, keys += panel_elements<P>(shape_.length), dq += kTileElements)
      gemm_tile(shape_.path, rows, ds_rows_, kBackwardBlock, kStep<P>, keys, steps_of<P>(num_keys), dq,
                key > first_key(query));
  }

  // Adds the contribution of the block's queries to its keys and values. On the diagonal, queries before a tile's first
  // key do not see it and are skipped.
  void add_to_keys(int64_t key, int64_t query, int64_t num_queries, bool sums_begin) {
    const int64_t num_keys = std::min(kBackwardBlock, shape_.length - key);
    for (int64_t row = 0; row < num_keys; row += kTileRows) {
      const int64_t unseen = key == query ? row : 0, rows = std::min(kTileRows, num_keys - row);
      const int64_t from = unseen * kBackwardBlock + row * kStep<P>,
                    steps = steps_of<P>(num_queries) - unseen / kStep<P>;
      const int64_t panel = (query + unseen) * kTileColumns;
      const int64_t sums = (key + row) / kTileRows * dim_tiles_ * kTileElements;
      for (int64_t d = 0; d < dim_tiles_; ++d) {
        const int64_t right = panel + d * panel_elements<P>(shape_.length), to = sums + d * kTileElements;
        gemm_tile(shape_.path, rows, p_steps_ + from, kStep<P>, kBackwardBlock * kStep<P>, douts_ + right, steps,
                  dv_ + to, !sums_begin);
        gemm_tile(shape_.path, rows, ds_steps_ + from, kStep<P>, kBackwardBlock * kStep<P>, queries_ + right, steps,
                  dk_ + to, !sums_begin);
      }
    }
  }

  const AttentionShape& shape_;
  int64_t dim_steps_, dim_tiles_;
  uintptr_t start_, next_;
  P *keys_transposed_, *values_transposed_, *keys_, *queries_, *douts_, *query_rows_, *dout_rows_;
  P *p_steps_, *ds_steps_, *ds_rows_;
  float *dq_, *dk_, *dv_, *dot_, *scores_, *dp_;
  float* slope_ = nullptr;  // slopes of the soft cap, if there is one
  const float* logsumexp_ = nullptr;
};

}  // namespace

template <class T>
void attention_backward(const AttentionShape& shape, const AttentionQueries<T>* queries, int64_t num_heads,
                        HeadRows<const T> k, HeadRows<const T> v, HeadRows<T> dk, HeadRows<T> dv, void* scratch) {
  with_packed<T>(shape.path, [&]<class P>(P*) {
    Backward<T, P> backward(shape, scratch);
    backward.set_keys(k, v);
    for (int64_t h = 0; h < num_heads; ++h) backward.add_head(queries[h], h == 0);
    backward.store_keys(dk, dv);
  });
}

template <class T>
int64_t attention_backward_scratch(const AttentionShape& shape) {
  return with_packed<T>(shape.path, [&]<class P>(P*) { return Backward<T, P>(shape, nullptr).scratch_bytes(); });
}

#define ATHANOR_ATTENTION_BACKWARD(T)                                                                                \
  template void attention_backward<T>(const AttentionShape&, const AttentionQueries<T>*, int64_t, HeadRows<const T>, \
                                      HeadRows<const T>, HeadRows<T>, HeadRows<T>, void*);                           \
  template int64_t attention_backward_scratch<T>(const AttentionShape&);
ATHANOR_ATTENTION_BACKWARD(float)
ATHANOR_ATTENTION_BACKWARD(Bf16)

}  // namespace athanor::kernels
