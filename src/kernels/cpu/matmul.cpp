#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/cpu/matmul_cut.h"
#include "kernels/gemm_tile.h"

namespace athanor::kernels {
namespace {

template <class P>
int64_t padded_bytes(int64_t elements) {
  return divide_up(elements * static_cast<int64_t>(sizeof(P)) + kBlockSlackBytes, kPanelAlignment) * kPanelAlignment;
}

template <class T, class P>
int64_t scratch_of(const Product<T>& p) {
  const Cut<T, P> cut(p);
  return cut.factors_of_pass() * (padded_bytes<P>(cut.a_elements()) + padded_bytes<P>(cut.strip_elements())) +
         padded_bytes<float>(cut.kept_elements());
}

// The part of A that a tile reads: packed, or in its original memory.
template <class P>
struct Rows {
  const P* data;
  int64_t row_stride, step_stride;
};

template <class T, class P>
class Part {
 public:
  Part(MatmulPath path, const std::vector<Product<T>>& products, const ProductPart& part, const ProductPart* next,
       void* scratch)
      : path_(path), p_(at(products, part)), part_(part), next_(next),
        next_p_(next ? &at(products, *next) : nullptr), blocks_{part.m_begin, part.m_end}, cut_(p_),
        packs_a_(cut_.packs_a()), is_thin_(is_thin()) {
    auto* bytes = static_cast<char*>(scratch);
    for (int f = 0; f < cut_.factors_of_pass(); ++f) {
      a_[f] = reinterpret_cast<P*>(bytes);
      bytes += padded_bytes<P>(cut_.a_elements());
      strip_[f] = reinterpret_cast<P*>(bytes);
      bytes += padded_bytes<P>(cut_.strip_elements());
    }
    if (cut_.keeps_tiles()) kept_ = reinterpret_cast<float*>(bytes);
  }

  void run() {
    for (int64_t i = 0; i < cut_.num_passes(); ++i) {
      pass_ = cut_.pass(i);
      steps_ = steps_of<P>(pass_.count);
      if (packs_a_) pack_a();
      const int64_t width = cut_.panels_in_strip() * kTileColumns;
      for (int64_t n = part_.n_begin; n < part_.n_end; n += width) strip(n, std::min(n + width, part_.n_end));
    }
  }

 private:
  static const Product<T>& at(const std::vector<Product<T>>& products, const ProductPart& part) {
    return products[static_cast<size_t>(part.index)];
  }
  const typename Product<T>::Factors& factors(int f) const { return f == 0 ? p_.first : p_.second; }
  // Returns the packed block of a factor that this pass packs.
  P* packed_a(int f) const { return a_[f - pass_.first_factor]; }
  P* packed_strip(int f) const { return strip_[f - pass_.first_factor]; }

  void pack_a() {
    for (int f = pass_.first_factor; f < pass_.end_factor; ++f) {
      const Matrix<T>& a = factors(f).a;
      for (int64_t block = 0; block < blocks_.count; ++block) {
        const int64_t first = blocks_.first(block), rows = blocks_.first(block + 1) - first;
        P* to = packed_a(f) + block * kTileRows * steps_ * kStep<P>;
        if (a.transposed) {
          pack_rows_transposed(path_, a.data + pass_.k * a.ld + first, a.ld, pass_.count, rows, p_.m - first, to);
        } else {
          pack_rows(path_, a.data + first * a.ld + pass_.k, a.ld, pass_.count, rows, to);
        }
      }
    }
  }

  Rows<P> rows_of(int f, int64_t block) const {
    if constexpr (std::is_same_v<T, P>) {
      const Matrix<T>& a = factors(f).a;
      if (!packs_a_) return {a.data + blocks_.first(block) * a.ld + pass_.k, a.ld, kStep<P>};
    }
    return {packed_a(f) + block * kTileRows * steps_ * kStep<P>, kStep<P>, kTileRows * kStep<P>};
  }

  void pack_strip(int64_t n_begin, int64_t n_end) {
    for (int f = pass_.first_factor; f < pass_.end_factor; ++f) {
      const Matrix<T>& b = factors(f).b;
      P* panel = packed_strip(f);
      for (int64_t n = n_begin; n < n_end; n += kTileColumns, panel += panel_elements<P>(pass_.count)) {
        const int64_t columns = std::min(kTileColumns, n_end - n);
        if (b.transposed) {
          pack_panel_transposed(path_, b.data + n * b.ld + pass_.k, b.ld, pass_.count, columns, panel);
        } else {
          pack_panel(path_, b.data + pass_.k * b.ld + n, b.ld, pass_.count, columns, panel);
        }
      }
    }
  }

  void tile(int f, int64_t block, int64_t rows, int64_t panel, float* c, Prefetch prefetch) const {
    const Rows<P> a = rows_of(f, block);
    gemm_tile(path_, rows, a.data, a.row_stride, a.step_stride,
              packed_strip(f) + panel * panel_elements<P>(pass_.count), steps_, c,
              f > pass_.first_factor || !pass_.begins, prefetch);
  }

  // Returns where a tile is stored between passes.
  float* kept(int64_t block, int64_t n) const {
    const int64_t panels = divide_up(part_.n_end - part_.n_begin, kTileColumns);
    return kept_ + (block * panels + (n - part_.n_begin) / kTileColumns) * kTileElements;
  }

  // Returns memory to prefetch: the B of the next strip, in this part or the next. The blocks take turns to prefetch
  // panel `panel` of factor f.
  Prefetch prefetch_of(int f, int64_t block, int64_t n_end, int64_t panel) const {
    const bool here = n_end < part_.n_end;
    if (!here && (!next_ || f >= next_p_->num_factors())) return {};
    const Product<T>& p = here ? p_ : *next_p_;
    const Matrix<T>& b = (f == 0 ? p.first : p.second).b;
    const int64_t n = (here ? n_end : next_->n_begin) + panel * kTileColumns, k = here ? pass_.k : 0;
    const int64_t k_count = here ? pass_.count : Cut<T, P>(p).k_of_pass();
    if (n >= (here ? part_.n_end : next_->n_end)) return {};
    constexpr int64_t kPair = 128;
    Prefetch prefetch;
    if (b.transposed) {  // 32 whole rows, one after another
      prefetch = {reinterpret_cast<const char*>(b.data + n * b.ld + k), kPair,
                  kTileColumns * k_count * static_cast<int64_t>(sizeof(T)) / kPair};
    } else if (n * static_cast<int64_t>(sizeof(T)) % kPair == 0) {  // k rows; in bf16 two panels share a pair
      prefetch = {reinterpret_cast<const char*>(b.data + k * b.ld + n), b.ld * static_cast<int64_t>(sizeof(T)),
                  k_count};
    }
    const int64_t share = divide_up(prefetch.pairs, blocks_.count);
    prefetch.lines += block * share * prefetch.stride;
    prefetch.pairs = std::min(share, prefetch.pairs - block * share);
    return prefetch;
  }

  // Returns the lines to which a later tile of this strip will add. It is a few tiles ahead, because one tile may take
  // less time than a prefetch.
  Prefetch prefetch_sum(int64_t block, int64_t panel, int64_t n_begin, int64_t n_end) const {
    const int64_t panels = divide_up(n_end - n_begin, kTileColumns);
    const int64_t later = (cut_.panel_stays() ? panel * blocks_.count + block : block * panels + panel) + 4;
    const int64_t later_block = cut_.panel_stays() ? later % blocks_.count : later / panels;
    const int64_t later_panel = cut_.panel_stays() ? later / blocks_.count : later % panels;
    if (later_block >= blocks_.count || later_panel >= panels) return {};
    const int64_t first = blocks_.first(later_block), rows = blocks_.first(later_block + 1) - first;
    return {reinterpret_cast<const char*>(p_.sum + first * p_.ld + n_begin + later_panel * kTileColumns),
            p_.ld * static_cast<int64_t>(sizeof(float)), rows};
  }

  // Returns the tile of the next block, as an earlier pass has left it.
  Prefetch prefetch_kept(int64_t block, int64_t n) const {
    if (pass_.begins || block + 1 >= blocks_.count) return {};
    return {reinterpret_cast<const char*>(kept(block + 1, n)), kTileColumns * static_cast<int64_t>(sizeof(float)),
            kTileRows};
  }

  Prefetch next_prefetch(int f, int64_t block, int64_t panel, int64_t n_begin, int64_t n_end) const {
    if (p_.sum && pass_.ends) return prefetch_sum(block, panel, n_begin, n_end);
    if (kept_ && cut_.panel_stays()) return prefetch_kept(block, n_begin + panel * kTileColumns);
    return prefetch_of(f, block, n_end, panel);
  }

  // True if a single block of rows uses each panel, as for the new tokens of a few texts.
  bool is_thin() const {
    return blocks_.count == 1 && p_.first.b.transposed && (!p_.second.b.data || p_.second.b.transposed);
  }

  // Such a panel is used once: it is packed a few k at a time, which stay in the first-level cache (8 KiB), instead of
  // being written to the second-level cache and read again.
  void thin_tile(int f, int64_t n, int64_t columns, float* c) const {
    constexpr int64_t kThin = 64;
    const Matrix<T>& b = factors(f).b;
    const Rows<P> a = rows_of(f, 0);
    for (int64_t k = 0; k < pass_.count; k += kThin) {
      const int64_t count = std::min(kThin, pass_.count - k);
      pack_panel_transposed(path_, b.data + n * b.ld + pass_.k + k, b.ld, count, columns, packed_strip(f));
      gemm_tile(path_, blocks_.end - blocks_.begin, a.data + k / kStep<P> * a.step_stride, a.row_stride, a.step_stride,
                packed_strip(f), steps_of<P>(count), c, k > 0 || f > pass_.first_factor || !pass_.begins);
    }
  }

  // Computes the tiles of a strip in the order that reuses the first-level cache best.
  void strip(int64_t n_begin, int64_t n_end) {
    if (!is_thin_) pack_strip(n_begin, n_end);
    const int64_t panels = divide_up(n_end - n_begin, kTileColumns);
    if (cut_.panel_stays()) {
      for (int64_t panel = 0; panel < panels; ++panel) {
        for (int64_t block = 0; block < blocks_.count; ++block) tile_to_memory(block, panel, n_begin, n_end);
      }
    } else {
      for (int64_t block = 0; block < blocks_.count; ++block) {
        for (int64_t panel = 0; panel < panels; ++panel) tile_to_memory(block, panel, n_begin, n_end);
      }
    }
  }

  void tile_to_memory(int64_t block, int64_t panel, int64_t n_begin, int64_t n_end) const {
    alignas(kPanelAlignment) float own[kTileElements];
    const int64_t first = blocks_.first(block), rows = blocks_.first(block + 1) - first;
    const int64_t n = n_begin + panel * kTileColumns, columns = std::min(kTileColumns, n_end - n);
    float* c = kept_ ? kept(block, n) : own;
    for (int f = pass_.first_factor; f < pass_.end_factor; ++f) {
      if (is_thin_) {
        thin_tile(f, n, columns, c);
      } else {
        tile(f, block, rows, panel, c, next_prefetch(f, block, panel, n_begin, n_end));
      }
    }
    if (!pass_.ends) return;
    if (p_.sum) {
      add_tile(c, rows, columns, p_.sum + first * p_.ld + n, p_.ld);
    } else {
      store_tile(c, rows, columns, p_.out + first * p_.ld + n, p_.ld);
    }
  }

  const MatmulPath path_;
  const Product<T>& p_;
  const ProductPart& part_;
  const ProductPart* next_;
  const Product<T>* next_p_;
  RowBlocks blocks_;
  const Cut<T, P> cut_;
  const bool packs_a_, is_thin_;
  Pass pass_{};
  int64_t steps_ = 0;
  P *a_[2] = {}, *strip_[2] = {};
  float* kept_ = nullptr;
};

}  // namespace

template <class T>
std::vector<ProductPart> cut_into_parts(MatmulPath path, const std::vector<Product<T>>& products) {
  std::vector<ProductPart> parts;
  with_packed<T>(path, [&]<class P>(P*) {
    for (size_t i = 0; i < products.size(); ++i) {
      const Product<T>& p = products[i];
      if (p.m == 0 || p.n == 0) continue;
      const Cut<T, P> cut(p);
      const int64_t rows = cut.rows(), columns = cut.columns();
      for (int64_t n = 0; n < p.n; n += columns) {
        for (int64_t m = 0; m < p.m; m += rows)
          parts.push_back({static_cast<int64_t>(i), m, std::min(m + rows, p.m), n, std::min(n + columns, p.n)});
      }
    }
  });
  return parts;
}

template <class T>
int64_t scratch_bytes(MatmulPath path, const std::vector<Product<T>>& products) {
  int64_t most = 0;
  with_packed<T>(path, [&]<class P>(P*) {
    for (const Product<T>& p : products) most = std::max(most, scratch_of<T, P>(p));
  });
  return most;
}

template <class T>
void multiply(MatmulPath path, const std::vector<Product<T>>& products, const ProductPart& part,
              const ProductPart* next, void* scratch) {
  with_packed<T>(path, [&]<class P>(P*) { Part<T, P>(path, products, part, next, scratch).run(); });
}

#define ATHANOR_MATMUL(T)                                                                          \
  template std::vector<ProductPart> cut_into_parts<T>(MatmulPath, const std::vector<Product<T>>&); \
  template int64_t scratch_bytes<T>(MatmulPath, const std::vector<Product<T>>&);                   \
  template void multiply<T>(MatmulPath, const std::vector<Product<T>>&, const ProductPart&, const ProductPart*, void*);
ATHANOR_MATMUL(float)
ATHANOR_MATMUL(Bf16)

}  // namespace athanor::kernels
