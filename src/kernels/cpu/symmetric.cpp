#include "kernels/symmetric.h"

#include <algorithm>

namespace athanor::kernels {
namespace {

constexpr int64_t kSide = 32;  // rows and columns of a tile

// A register's worth of elements; a square of that many of them is transposed at once.
template <class T>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float Vector __attribute__((vector_size(16)));
  static constexpr int64_t kCount = 4;
  ATHANOR_INLINE static Vector low(Vector a, Vector b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
  ATHANOR_INLINE static Vector high(Vector a, Vector b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
};
template <>
struct Lanes<Bf16> {
  typedef uint16_t Vector __attribute__((vector_size(16)));
  static constexpr int64_t kCount = 8;
  ATHANOR_INLINE static Vector low(Vector a, Vector b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  }
  ATHANOR_INLINE static Vector high(Vector a, Vector b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
};

template <class T>
struct Tile {
  alignas(64) T at[kSide][kSide];
};

// to[j · ld + i] = tile[i][j] for a whole tile. Interleaving row i with row i + n / 2, log2(n) times, transposes n
// rows.
template <class T>
ATHANOR_INLINE void store_transposed(const Tile<T>& tile, T* to, int64_t ld) {
  using L = Lanes<T>;
  constexpr int64_t n = L::kCount;
  for (int64_t i = 0; i < kSide; i += n) {
    for (int64_t j = 0; j < kSide; j += n) {
      typename L::Vector rows[n], next[n];
      for (int64_t r = 0; r < n; ++r) __builtin_memcpy(&rows[r], &tile.at[i + r][j], sizeof rows[r]);
      for (int64_t round = 1; round < n; round *= 2) {
        for (int64_t r = 0; r < n / 2; ++r) {
          next[2 * r] = L::low(rows[r], rows[r + n / 2]);
          next[2 * r + 1] = L::high(rows[r], rows[r + n / 2]);
        }
        for (int64_t r = 0; r < n; ++r) rows[r] = next[r];
      }
      for (int64_t r = 0; r < n; ++r) __builtin_memcpy(to + (j + r) * ld + i, &rows[r], sizeof rows[r]);
    }
  }
}

template <class T>
ATHANOR_INLINE void store_transposed(const Tile<T>& tile, int64_t rows, int64_t columns, T* to, int64_t ld) {
  if (rows == kSide && columns == kSide) return store_transposed(tile, to, ld);
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) to[j * ld + i] = tile.at[i][j];
  }
}

template <class T>
ATHANOR_INLINE void store_plain(const Tile<T>& tile, int64_t rows, int64_t columns, T* to, int64_t ld) {
  for (int64_t i = 0; i < rows; ++i) std::copy_n(tile.at[i], columns, to + i * ld);
}

// Calls f(i0, j0, rows, columns) for tiles that cover rows [begin, end) and columns [0, width).
template <class F>
ATHANOR_INLINE void for_each_tile(int64_t begin, int64_t end, int64_t width, F f) {
  for (int64_t i = begin; i < end; i += kSide) {
    for (int64_t j = 0; j < width; j += kSide) f(i, j, std::min(kSide, end - i), std::min(kSide, width - j));
  }
}

// Calls fill(row of the tile, row, first column, columns) for the rows of each tile on or below the diagonal. Stores
// elements (i, j) at (j, i), and at (i, j) if `both`, for j <= i.
template <class T, class Fill>
ATHANOR_INLINE void fill_symmetric(T* out, int64_t m, int64_t begin, int64_t end, bool both, Fill fill) {
  for (int64_t i0 = begin; i0 < end; i0 += kSide) {
    const int64_t rows = std::min(kSide, end - i0);
    for (int64_t j0 = 0; j0 < i0 + rows; j0 += kSide) {
      const int64_t columns = std::min(kSide, i0 + rows - j0);
      Tile<T> tile;
      for (int64_t i = 0; i < rows; ++i) fill(tile.at[i], i0 + i, j0, columns);
      if (j0 + columns <= i0 + 1) {
        store_transposed(tile, rows, columns, out + j0 * m + i0, m);
        if (both) store_plain(tile, rows, columns, out + i0 * m + j0, m);
        continue;
      }
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < std::min(columns, i0 + i - j0 + 1); ++j)
          out[(i0 + i) * m + j0 + j] = out[(j0 + j) * m + i0 + i] = tile.at[i][j];
      }
    }
  }
}

template <class T, class Second>
ATHANOR_INLINE void add_symmetric_rows(float a, float b, const T* first, float c, const Second* second, T* out,
                                       int64_t m, int64_t begin, int64_t end) {
  fill_symmetric(out, m, begin, end, true, [=](T* row, int64_t i, int64_t j0, int64_t columns) {
    const T* x = first + i * m + j0;
    const Second* y = second + i * m + j0;
    for (int64_t j = 0; j < columns; ++j) store(row[j], b * load(x[j]) + c * load(y[j]) + (i == j0 + j ? a : 0.0f));
  });
}

template <class From, class To>
ATHANOR_INLINE void convert(const From* from, int64_t rows, int64_t columns, float scale, bool transposed, To* to,
                            int64_t begin, int64_t end) {
  if (!transposed) {
    for (int64_t i = begin * columns; i < end * columns; ++i) store(to[i], scale * load(from[i]));
    return;
  }
  for_each_tile(begin, end, columns, [=](int64_t i0, int64_t j0, int64_t tile_rows, int64_t tile_columns) {
    Tile<To> tile;
    for (int64_t i = 0; i < tile_rows; ++i) {
      const From* row = from + (i0 + i) * columns + j0;
      for (int64_t j = 0; j < tile_columns; ++j) store(tile.at[i][j], scale * load(row[j]));
    }
    store_transposed(tile, tile_rows, tile_columns, to + j0 * rows + i0, rows);
  });
}

}  // namespace

#define ATHANOR_SYMMETRIC(T)                                                                                    \
  template <>                                                                                                   \
  ATHANOR_EACH_ISA void mirror<T>(T * matrix, int64_t m, int64_t begin, int64_t end) {                          \
    fill_symmetric(matrix, m, begin, end, false, [=](T* row, int64_t i, int64_t j0, int64_t columns) {          \
      std::copy_n(matrix + i * m + j0, columns, row);                                                           \
    });                                                                                                         \
  }                                                                                                             \
  template <>                                                                                                   \
  ATHANOR_EACH_ISA void add_symmetric<T, float>(float a, float b, const T* first, float c, const float* second, \
                                                T* out, int64_t m, int64_t begin, int64_t end) {                \
    add_symmetric_rows(a, b, first, c, second, out, m, begin, end);                                             \
  }                                                                                                             \
  template <>                                                                                                   \
  ATHANOR_EACH_ISA void convert_rows<float, T>(const float* from, int64_t rows, int64_t columns, float scale,   \
                                               bool transposed, T* to, int64_t begin, int64_t end) {            \
    convert(from, rows, columns, scale, transposed, to, begin, end);                                            \
  }
ATHANOR_SYMMETRIC(float)
ATHANOR_SYMMETRIC(Bf16)
#undef ATHANOR_SYMMETRIC

template <>
ATHANOR_EACH_ISA void add_symmetric<Bf16, Bf16>(float a, float b, const Bf16* first, float c, const Bf16* second,
                                                Bf16* out, int64_t m, int64_t begin, int64_t end) {
  add_symmetric_rows(a, b, first, c, second, out, m, begin, end);
}
template <>
ATHANOR_EACH_ISA void convert_rows<Bf16, float>(const Bf16* from, int64_t rows, int64_t columns, float scale,
                                                bool transposed, float* to, int64_t begin, int64_t end) {
  convert(from, rows, columns, scale, transposed, to, begin, end);
}

}  // namespace athanor::kernels
