#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/gemm_pack.h"
#include "kernels/gemm_store.h"

namespace athanor::kernels {
namespace {

// B's strip should stay in the second-level cache (1 MiB or more on chips with AVX-512) beside A's rows.
constexpr int64_t kStripBytes = 512 << 10;
constexpr int64_t kMostPanels = 16;
constexpr int64_t kShortPanelBytes = 32 << 10;
constexpr int64_t kSumChunk = 1024;    // k of a sum that goes to memory: bounds the packed A
constexpr int64_t kLongK = 4096;       // beyond it a panel is too large for the second-level cache;
constexpr int64_t kLongChunk = 2048;   // tiles are then kept as fp32 between chunks of k
constexpr int64_t kPartRows = 960;     // 80 blocks of 12
constexpr int64_t kSumColumns = 1024;  // a packed A is used for as many columns

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class T>
int64_t chunk_of(const Product<T>& p) {
  if (p.sum) return std::min(p.k, kSumChunk);
  return p.k > kLongK ? kLongChunk : p.k;
}

// Whether tiles wait for the next chunk in scratch memory.
template <class T>
bool keeps_tiles(const Product<T>& p) {
  return p.out && p.k > kLongK;
}

template <class T>
int64_t panel_elements(int64_t k) {
  return steps_of<T>(k) * kStep<T> * kTileColumns;
}

// Panels packed at once for each of the product's factors.
template <class T>
int64_t panels_in_strip(const Product<T>& p) {
  const int64_t bytes = panel_elements<T>(chunk_of(p)) * static_cast<int64_t>(sizeof(T)) * p.num_factors();
  return std::clamp<int64_t>(kStripBytes / std::max<int64_t>(bytes, 1), 1, kMostPanels);
}

// A has to be copied if its k are not contiguous, or if the last step would read beyond a row.
template <class T>
bool packs_a(const Product<T>& p) {
  return p.first.a.transposed || p.k % kStep<T> != 0;
}

template <class T>
int64_t part_rows(const Product<T>& p) {
  return divide_up(p.m, divide_up(p.m, kPartRows));
}

template <class T>
int64_t part_columns(const Product<T>& p) {
  return std::max(panels_in_strip(p) * kTileColumns, packs_a(p) ? kSumColumns : 0);
}

// Blocks of at most 12 rows, as even as they go: a block of 1 would leave the units idle.
struct RowBlocks {
  int64_t begin, end, count = divide_up(end - begin, kTileRows);
  int64_t first(int64_t block) const { return begin + (end - begin) * block / count; }
};

template <class T>
int64_t a_elements(const Product<T>& p) {
  return packs_a(p) ? divide_up(part_rows(p), kTileRows) * kTileRows * steps_of<T>(chunk_of(p)) * kStep<T> : 0;
}

constexpr int64_t kTileElements = kTileRows * kTileColumns;

template <class T>
int64_t kept_elements(const Product<T>& p) {
  if (!keeps_tiles(p)) return 0;
  return divide_up(part_rows(p), kTileRows) * divide_up(part_columns(p), kTileColumns) * kTileElements;
}

template <class T>
int64_t padded_bytes(int64_t elements) {
  return divide_up(elements * static_cast<int64_t>(sizeof(T)) + kBlockSlackBytes, kPanelAlignment) * kPanelAlignment;
}

// What a tile reads of A: packed, or as it lies.
template <class T>
struct Rows {
  const T* data;
  int64_t row_stride, step_stride;
};

template <class T>
class Part {
 public:
  Part(const std::vector<Product<T>>& products, const ProductPart& part, const ProductPart* next, void* scratch)
      : p_(at(products, part)), part_(part), next_(next),
        next_p_(next ? &at(products, *next) : nullptr), blocks_{part.m_begin, part.m_end}, chunk_(chunk_of(p_)) {
    auto* bytes = static_cast<char*>(scratch);
    for (int f = 0; f < p_.num_factors(); ++f) {
      a_[f] = reinterpret_cast<T*>(bytes);
      bytes += padded_bytes<T>(a_elements(p_));
      strip_[f] = reinterpret_cast<T*>(bytes);
      bytes += padded_bytes<T>(panels_in_strip(p_) * panel_elements<T>(chunk_));
    }
    if (keeps_tiles(p_)) kept_ = reinterpret_cast<float*>(bytes);
  }

  void run() {
    for (int64_t k = 0; k < p_.k; k += chunk_) {
      k_begin_ = k;
      k_count_ = std::min(chunk_, p_.k - k);
      steps_ = steps_of<T>(k_count_);
      if (packs_a(p_)) pack_a();
      const int64_t width = panels_in_strip(p_) * kTileColumns;
      for (int64_t n = part_.n_begin; n < part_.n_end; n += width) strip(n, std::min(n + width, part_.n_end));
    }
  }

 private:
  static const Product<T>& at(const std::vector<Product<T>>& products, const ProductPart& part) {
    return products[static_cast<size_t>(part.index)];
  }
  const typename Product<T>::Factors& factors(int f) const { return f == 0 ? p_.first : p_.second; }

  void pack_a() {
    for (int f = 0; f < p_.num_factors(); ++f) {
      const Matrix<T>& a = factors(f).a;
      for (int64_t block = 0; block < blocks_.count; ++block) {
        const int64_t first = blocks_.first(block), rows = blocks_.first(block + 1) - first;
        T* to = a_[f] + block * kTileRows * steps_ * kStep<T>;
        if (a.transposed) {
          pack_rows_transposed(a.data + k_begin_ * a.ld + first, a.ld, k_count_, rows, to);
        } else {
          copy_rows(a.data + first * a.ld + k_begin_, a.ld, rows, to);
        }
      }
    }
  }

  // Rows with an odd number of bf16, in the order of pack_rows_transposed.
  void copy_rows(const T* a, int64_t ld, int64_t rows, T* to) const {
    std::fill_n(to, kTileRows * steps_ * kStep<T>, T{});
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < k_count_; ++k)
        to[(k / kStep<T> * kTileRows + i) * kStep<T> + k % kStep<T>] = a[i * ld + k];
    }
  }

  Rows<T> rows_of(int f, int64_t block) const {
    if (packs_a(p_)) return {a_[f] + block * kTileRows * steps_ * kStep<T>, kStep<T>, kTileRows * kStep<T>};
    const Matrix<T>& a = factors(f).a;
    return {a.data + blocks_.first(block) * a.ld + k_begin_, a.ld, kStep<T>};
  }

  void pack_strip(int64_t n_begin, int64_t n_end) {
    for (int f = 0; f < p_.num_factors(); ++f) {
      const Matrix<T>& b = factors(f).b;
      T* panel = strip_[f];
      for (int64_t n = n_begin; n < n_end; n += kTileColumns, panel += panel_elements<T>(k_count_)) {
        const int64_t columns = std::min(kTileColumns, n_end - n);
        if (b.transposed) {
          pack_panel_transposed(b.data + n * b.ld + k_begin_, b.ld, k_count_, columns, panel);
        } else {
          pack_panel(b.data + k_begin_ * b.ld + n, b.ld, k_count_, columns, panel);
        }
      }
    }
  }

  void tile(int f, int64_t block, int64_t rows, int64_t panel, float* c, Ahead ahead) const {
    const Rows<T> a = rows_of(f, block);
    gemm_tile(rows, a.data, a.row_stride, a.step_stride, strip_[f] + panel * panel_elements<T>(k_count_), steps_, c,
              f > 0 || (kept_ && k_begin_ > 0), ahead);
  }

  // Where a tile lies between chunks of k.
  float* kept(int64_t block, int64_t n) const {
    const int64_t panels = divide_up(part_.n_end - part_.n_begin, kTileColumns);
    return kept_ + (block * panels + (n - part_.n_begin) / kTileColumns) * kTileElements;
  }

  // The B of the strip after this one, in this part or the next. Its panel `panel` of factor f is asked for by the
  // blocks in turn.
  Ahead ahead_of(int f, int64_t block, int64_t n_end, int64_t panel) const {
    const bool here = n_end < part_.n_end;
    if (!here && (!next_ || f >= next_p_->num_factors())) return {};
    const Product<T>& p = here ? p_ : *next_p_;
    const Matrix<T>& b = (f == 0 ? p.first : p.second).b;
    const int64_t n = (here ? n_end : next_->n_begin) + panel * kTileColumns, k = here ? k_begin_ : 0;
    const int64_t k_count = here ? k_count_ : chunk_of(p);
    if (n >= (here ? part_.n_end : next_->n_end)) return {};
    constexpr int64_t kPair = 128;
    Ahead ahead;
    if (b.transposed) {  // 32 whole rows, one after another
      ahead = {reinterpret_cast<const char*>(b.data + n * b.ld + k), kPair,
               kTileColumns * k_count * static_cast<int64_t>(sizeof(T)) / kPair};
    } else if (n * static_cast<int64_t>(sizeof(T)) % kPair == 0) {  // k rows; in bf16 two panels share a pair
      ahead = {reinterpret_cast<const char*>(b.data + k * b.ld + n), b.ld * static_cast<int64_t>(sizeof(T)), k_count};
    }
    const int64_t share = divide_up(ahead.pairs, blocks_.count);
    ahead.lines += block * share * ahead.stride;
    ahead.pairs = std::min(share, ahead.pairs - block * share);
    return ahead;
  }

  // The lines that a later tile of this strip will add to. A few tiles ahead: one may take less time than they do.
  Ahead sum_ahead(int64_t block, int64_t panel, int64_t n_begin, int64_t n_end) const {
    const int64_t panels = divide_up(n_end - n_begin, kTileColumns), later = block * panels + panel + 4;
    if (later / panels >= blocks_.count) return {};
    const int64_t first = blocks_.first(later / panels), rows = blocks_.first(later / panels + 1) - first;
    return {reinterpret_cast<const char*>(p_.sum + first * p_.ld + n_begin + later % panels * kTileColumns),
            p_.ld * static_cast<int64_t>(sizeof(float)), rows};
  }

  // Tiles of a strip in the order that leaves most to the first-level cache: a short panel stays there while all rows
  // pass; a long one passes under rows that stay. Sums go along rows of memory.
  void strip(int64_t n_begin, int64_t n_end) {
    pack_strip(n_begin, n_end);
    const int64_t panels = divide_up(n_end - n_begin, kTileColumns);
    if (!p_.sum && panel_elements<T>(k_count_) * static_cast<int64_t>(sizeof(T)) <= kShortPanelBytes) {
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
    for (int f = 0; f < p_.num_factors(); ++f) {
      tile(f, block, rows, panel, c,
           p_.sum ? sum_ahead(block, panel, n_begin, n_end) : ahead_of(f, block, n_end, panel));
    }
    if (p_.sum) {
      add_tile(c, rows, columns, p_.sum + first * p_.ld + n, p_.ld);
    } else if (k_begin_ + k_count_ == p_.k) {
      store_tile(c, rows, columns, p_.out + first * p_.ld + n, p_.ld);
    }
  }

  const Product<T>& p_;
  const ProductPart& part_;
  const ProductPart* next_;
  const Product<T>* next_p_;
  RowBlocks blocks_;
  int64_t chunk_, k_begin_ = 0, k_count_ = 0, steps_ = 0;
  T *a_[2] = {}, *strip_[2] = {};
  float* kept_ = nullptr;
};

}  // namespace

template <class T>
std::vector<ProductPart> cut_into_parts(const std::vector<Product<T>>& products) {
  std::vector<ProductPart> parts;
  for (size_t i = 0; i < products.size(); ++i) {
    const Product<T>& p = products[i];
    if (p.m == 0 || p.n == 0) continue;
    const int64_t rows = part_rows(p), columns = part_columns(p);
    for (int64_t n = 0; n < p.n; n += columns) {
      for (int64_t m = 0; m < p.m; m += rows)
        parts.push_back({static_cast<int64_t>(i), m, std::min(m + rows, p.m), n, std::min(n + columns, p.n)});
    }
  }
  return parts;
}

template <class T>
int64_t scratch_bytes(const std::vector<Product<T>>& products) {
  int64_t most = 0;
  for (const Product<T>& p : products) {
    const int64_t strip = panels_in_strip(p) * panel_elements<T>(chunk_of(p));
    most = std::max(most, p.num_factors() * (padded_bytes<T>(a_elements(p)) + padded_bytes<T>(strip)) +
                              padded_bytes<float>(kept_elements(p)));
  }
  return most;
}

template <class T>
void multiply(const std::vector<Product<T>>& products, const ProductPart& part, const ProductPart* next,
              void* scratch) {
  Part<T>(products, part, next, scratch).run();
}

#define ATHANOR_MATMUL(T)                                                              \
  template std::vector<ProductPart> cut_into_parts<T>(const std::vector<Product<T>>&); \
  template int64_t scratch_bytes<T>(const std::vector<Product<T>>&);                   \
  template void multiply<T>(const std::vector<Product<T>>&, const ProductPart&, const ProductPart*, void*);
ATHANOR_MATMUL(float)
ATHANOR_MATMUL(Bf16)

}  // namespace athanor::kernels
