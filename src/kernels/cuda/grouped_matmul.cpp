#include "kernels/cuda/grouped_matmul.h"

#include "kernels/cuda/launch.h"

namespace athanor::kernels::cuda {
namespace {

// A team computes a tile of results. Each thread has kOwn × kOwn of them, kSide apart, so that threads next to each
// other read and write elements next to each other.
constexpr int kTile = 64, kSide = 16, kOwn = kTile / kSide;
constexpr int kDepth = 16;  // terms of each sum that are in shared memory at once
constexpr int kTileThreads = kSide * kSide;
using TileTeam = Team<kTileThreads>;

struct OwnSums {
  float at[kOwn][kOwn] = {};
};
using Sums = PerThread<OwnSums, kTileThreads>;

// Element (r, c) of a matrix is at[r · row_step + c · column_step].
template <class T>
struct Matrix {
  const T* at;
  int64_t row_step, column_step;
};

// Copies a part of a matrix to shared memory, where rows have one element more than kColumns, so that those of one
// column are in different banks. Elements beyond the part are zero.
template <int kRows, int kColumns, class T>
ATHANOR_INLINE void copy_part(int thread, const Matrix<T>& from, int64_t rows, int64_t columns, float* to) {
  const bool along_rows = from.column_step == 1;
  for (int e = thread; e < kRows * kColumns; e += kTileThreads) {
    const int r = along_rows ? e / kColumns : e % kRows, c = along_rows ? e % kColumns : e / kRows;
    const bool is_inside = r < rows && c < columns;
    to[r * (kColumns + 1) + c] = is_inside ? load(from.at[r * from.row_step + c * from.column_step]) : 0.0f;
  }
}

struct TileSize {
  int64_t rows, columns;
};

// Adds left · right, [rows, depth] · [depth, columns], to the sums of a tile.
template <class T>
ATHANOR_INLINE void add_product(const TileTeam& team, Sums& sums, Matrix<T> left, Matrix<T> right, TileSize size,
                                int64_t depth) {
  float* left_part = team.template shared<float, kTile*(kDepth + 1), 0>();
  float* right_part = team.template shared<float, kDepth*(kTile + 1), 1>();
  for (int64_t begin = 0; begin < depth; begin += kDepth) {
    const int64_t count = min_of(kDepth, depth - begin);
    team.each([&](int thread) {
      copy_part<kTile, kDepth>(thread, left, size.rows, count, left_part);
      copy_part<kDepth, kTile>(thread, right, count, size.columns, right_part);
    });
    team.each([&](int thread) {
      OwnSums& own = sums.of(thread);
      const int row = thread / kSide, column = thread % kSide;
      for (int64_t d = 0; d < count; ++d) {
        for (int i = 0; i < kOwn && row + i * kSide < size.rows; ++i) {
          const float factor = left_part[(row + i * kSide) * (kDepth + 1) + d];
          for (int j = 0; j < kOwn; ++j) own.at[i][j] += factor * right_part[d * (kTile + 1) + column + j * kSide];
        }
      }
    });
    left.at += kDepth * left.column_step;
    right.at += kDepth * right.row_step;
  }
}

// Calls f(row, column, sum) for each result of the tile.
template <class F>
ATHANOR_INLINE void for_each_sum(const TileTeam& team, Sums& sums, TileSize size, F f) {
  team.each([&](int thread) {
    for (int i = 0; i < kOwn; ++i) {
      for (int j = 0; j < kOwn; ++j) {
        const int row = thread / kSide + i * kSide, column = thread % kSide + j * kSide;
        if (row < size.rows && column < size.columns) f(row, column, sums.of(thread).at[i][j]);
      }
    }
  });
}

ATHANOR_INLINE int64_t tiles_for(int64_t n) { return (n + kTile - 1) / kTile; }

}  // namespace

template <class T>
void grouped_matmul(const Stream& stream, const T* a, const T* b, bool b_transposed, T* out, const int64_t* offsets,
                    const GroupedShape& shape) {
  const int64_t groups = shape.groups, depth = shape.inner, width = shape.columns, column_tiles = tiles_for(width);
  // The host does not know how many tiles a group has; each has at most one that is not full.
  const int64_t row_tiles = shape.rows / kTile + groups;
  for_each_team<kTileThreads>(
      stream, "grouped_matmul", row_tiles * column_tiles, [=] ATHANOR_BODY(const TileTeam& team) {
        int64_t tile = team.index() / column_tiles, g = 0;
        while (g < groups && tile >= tiles_for(offsets[g + 1] - offsets[g]))
          tile -= tiles_for(offsets[g + 1] - offsets[g]), ++g;
        if (g == groups) return;
        const int64_t row = offsets[g] + tile * kTile, column = team.index() % column_tiles * kTile;
        const TileSize size{min_of(kTile, offsets[g + 1] - row), min_of(kTile, width - column)};
        const int64_t row_step = b_transposed ? 1 : width, column_step = b_transposed ? depth : 1;
        Sums sums;
        add_product<T>(team, sums, {a + row * depth, depth, 1},
                       {b + g * depth * width + column * column_step, row_step, column_step}, size, depth);
        for_each_sum(team, sums, size,
                     [=](int r, int c, float sum) { store(out[(row + r) * width + column + c], sum); });
      });
}

template <class T>
void add_grouped_outer_product(const Stream& stream, float* sum, const T* a, const T* b, const int64_t* offsets,
                               int64_t groups, int64_t m, int64_t n) {
  const int64_t row_tiles = tiles_for(m), column_tiles = tiles_for(n);
  for_each_team<kTileThreads>(
      stream, "add_grouped_outer_product", groups * row_tiles * column_tiles, [=] ATHANOR_BODY(const TileTeam& team) {
        const int64_t g = team.index() / (row_tiles * column_tiles), first = offsets[g], depth = offsets[g + 1] - first;
        if (depth <= 0) return;
        const int64_t row = team.index() / column_tiles % row_tiles * kTile;
        const int64_t column = team.index() % column_tiles * kTile;
        const TileSize size{min_of(kTile, m - row), min_of(kTile, n - column)};
        Sums sums;
        add_product<T>(team, sums, {a + first * m + row, 1, m}, {b + first * n + column, n, 1}, size, depth);
        float* to = sum + g * m * n + row * n + column;
        for_each_sum(team, sums, size, [=](int r, int c, float own) { to[r * n + c] += own; });
      });
}

#define ATHANOR_CUDA_GROUPED(T)                                                                                      \
  template void grouped_matmul<T>(const Stream&, const T*, const T*, bool, T*, const int64_t*, const GroupedShape&); \
  template void add_grouped_outer_product<T>(const Stream&, float*, const T*, const T*, const int64_t*, int64_t,     \
                                             int64_t, int64_t);

ATHANOR_CUDA_GROUPED(float)
ATHANOR_CUDA_GROUPED(Bf16)

}  // namespace athanor::kernels::cuda
