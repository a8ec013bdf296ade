#include "kernels/cuda/routing.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

namespace athanor::kernels::cuda {
namespace {

// The tokens that one thread walks in order: TBS of Algorithm 1. A smaller number means more counts to scan, a larger
// one fewer threads; for very many tokens it grows, so that the counts of an expert stay few.
constexpr int64_t kLeastTokens = 8, kMostBlocks = 8192;

int64_t tokens_of_block(int64_t tokens) {
  int64_t size = kLeastTokens;
  while (size * kMostBlocks < tokens) size *= 2;
  return size;
}

int64_t blocks_of_tokens(int64_t tokens) {
  const int64_t size = tokens_of_block(tokens);
  return (tokens + size - 1) / size;
}

}  // namespace

int64_t sort_choices_workspace(int64_t tokens, int64_t num_local_experts) {
  return blocks_of_tokens(tokens) * num_local_experts;
}

void sort_choices(const Stream& stream, const int64_t* ids, int64_t tokens, int64_t k, int64_t first_local_expert,
                  int64_t num_local_experts, int64_t* offsets, int64_t* choice_of_row, int64_t* row_of_choice,
                  int64_t* workspace, int64_t row_alignment) {
  const int64_t experts = num_local_experts, blocks = blocks_of_tokens(tokens), block = tokens_of_block(tokens) * k;
  const int64_t choices = tokens * k;
  // next[expert][block], first the count. A thread has a block of tokens (lines 24 to 37): it reads each choice once
  // and changes only its own column, so no atomics are needed.
  int64_t* next = workspace;
  for_each_index(stream, "sort_choices: count", blocks, [=] ATHANOR_BODY(int64_t b) {
    for (int64_t e = 0; e < experts; ++e) next[e * blocks + b] = 0;
    const int64_t end = min_of((b + 1) * block, choices);
    for (int64_t c = b * block; c < end; ++c) {
      const int64_t expert = ids[c] - first_local_expert;
      if (expert >= 0 && expert < experts) ++next[expert * blocks + b];
    }
  });

  // A team for each expert: counts become the rows that the expert's earlier blocks fill (lines 39 to 43), and their
  // total is left in offsets.
  for_each_team<kThreads>(stream, "sort_choices: scan", experts, [=] ATHANOR_BODY(const Team<kThreads>& team) {
    int64_t* count = next + team.index() * blocks;
    int64_t before = 0;
    for (int64_t first = 0; first < blocks; first += kThreads) {
      before += team.scan<int64_t>([=](int thread) { return first + thread < blocks ? count[first + thread] : 0; },
                                   [=](int thread, int64_t earlier) {
                                     if (first + thread < blocks) count[first + thread] = before + earlier;
                                   });
    }
    team.each([=](int thread) {
      if (thread == 0) offsets[team.index() + 1] = before;
    });
  });

  // In one team, totals become the ends of the experts' rows, and their padding is marked.
  const auto padded = [=] ATHANOR_BODY(int64_t rows) {
    return (rows + row_alignment - 1) / row_alignment * row_alignment;
  };
  for_each_team<kThreads>(stream, "sort_choices: offsets", 1, [=] ATHANOR_BODY(const Team<kThreads>& team) {
    int64_t before = 0;
    for (int64_t first = 0; first < experts; first += kThreads) {
      before += team.scan<int64_t>(
          [=](int thread) { return first + thread < experts ? padded(offsets[first + thread + 1]) : 0; },
          [=](int thread, int64_t earlier) {
            if (first + thread >= experts) return;
            int64_t& end = offsets[first + thread + 1];
            const int64_t begin = before + earlier, size = padded(end);
            for (int64_t row = begin + end; row < begin + size; ++row) choice_of_row[row] = -1;
            end = begin + size;
          });
    }
    team.each([=](int thread) {
      if (thread == 0) offsets[0] = 0;
    });
  });

  // Each thread walks its block again (lines 52 to 72); its column of `next` counts on.
  for_each_index(stream, "sort_choices: place", blocks, [=] ATHANOR_BODY(int64_t b) {
    const int64_t end = min_of((b + 1) * block, choices);
    for (int64_t c = b * block; c < end; ++c) {
      const int64_t expert = ids[c] - first_local_expert;
      if (expert < 0 || expert >= experts) {
        row_of_choice[c] = -1;
        continue;
      }
      const int64_t row = offsets[expert] + next[expert * blocks + b]++;
      row_of_choice[c] = row;
      choice_of_row[row] = c;
    }
  });
}

namespace {

template <class T, int N>
void gather_packs(const Stream& stream, const T* x, const ExpertRows& rows, T* out, int64_t k, int64_t width) {
  const int64_t packs = width / N;
  for_each_index(stream, "gather_rows", rows.most_rows * packs, [=] ATHANOR_BODY(int64_t i) {
    const int64_t row = i / packs, at = i % packs * N;
    if (row >= *rows.num_rows) return;
    const int64_t choice = rows.choice_of_row[row];
    Pack<T, N> pack{};
    if (choice >= 0) pack = load_pack<N>(x + choice / k * width + at);
    store_pack(out + row * width + at, pack);
  });
}

template <class T, int N>
void place_packs(const Stream& stream, const T* from, const ExpertRows& rows, const int64_t* row_of_choice, T* to,
                 int64_t width) {
  const int64_t packs = width / N;
  for_each_index(stream, "place_rows", rows.most_rows * packs, [=] ATHANOR_BODY(int64_t i) {
    const int64_t row = i / packs, at = i % packs * N;
    if (row >= *rows.num_rows) return;
    const int64_t choice = rows.choice_of_row[row];
    if (choice >= 0) store_pack(to + row_of_choice[choice] * width + at, load_pack<N>(from + row * width + at));
  });
}

template <class T, int N>
void combine_packs(const Stream& stream, const T* y, const T* z, const float* weights, const int64_t* row_of_choice,
                   T* out, int64_t tokens, int64_t k, int64_t width) {
  const int64_t packs = width / N;
  for_each_index(stream, "combine_rows", tokens * packs, [=] ATHANOR_BODY(int64_t i) {
    const int64_t token = i / packs, at = i % packs * N;
    float sum[N] = {};
    for (int64_t c = token * k; c < (token + 1) * k; ++c) {
      const int64_t row = row_of_choice[c];
      if (row < 0) continue;
      const Pack<T, N> pack = load_pack<N>(y + row * width + at);
      Pack<T, N> addend{};
      if (z) addend = load_pack<N>(z + row * width + at);
      const float weight = weights ? weights[c] : 1.0f;
      for (int l = 0; l < N; ++l) sum[l] += weight * (z ? load(pack.at[l]) + load(addend.at[l]) : load(pack.at[l]));
    }
    Pack<T, N> result;
    for (int l = 0; l < N; ++l) store(result.at[l], sum[l]);
    store_pack(out + token * width + at, result);
  });
}

}  // namespace

template <class T>
void gather_rows(const Stream& stream, const T* x, const ExpertRows& rows, T* out, int64_t k, int64_t width) {
  if (can_pack<T>(width, x, out)) {
    gather_packs<T, kPack<T>>(stream, x, rows, out, k, width);
  } else {
    gather_packs<T, 1>(stream, x, rows, out, k, width);
  }
}

void renumber_choices(const Stream& stream, const ExpertRows& rows, const int64_t* token_of, int64_t k,
                      int64_t* choice_of_row, int64_t* row_of_choice) {
  for_each_index(stream, "renumber_choices", rows.most_rows, [=] ATHANOR_BODY(int64_t row) {
    if (row >= *rows.num_rows || choice_of_row[row] < 0) return;
    const int64_t sorted = choice_of_row[row], choice = token_of[sorted / k] * k + sorted % k;
    choice_of_row[row] = choice;
    row_of_choice[choice] = row;
  });
}

template <class T>
void place_rows(const Stream& stream, const T* from, const ExpertRows& rows, const int64_t* row_of_choice, T* to,
                int64_t width) {
  if (can_pack<T>(width, from, to)) {
    place_packs<T, kPack<T>>(stream, from, rows, row_of_choice, to, width);
  } else {
    place_packs<T, 1>(stream, from, rows, row_of_choice, to, width);
  }
}

template <class T>
void combine_rows(const Stream& stream, const T* y, const T* z, const float* weights, const int64_t* row_of_choice,
                  T* out, int64_t tokens, int64_t k, int64_t width) {
  if (can_pack<T>(width, y, z, out)) {
    combine_packs<T, kPack<T>>(stream, y, z, weights, row_of_choice, out, tokens, k, width);
  } else {
    combine_packs<T, 1>(stream, y, z, weights, row_of_choice, out, tokens, k, width);
  }
}

#define ATHANOR_CUDA_ROUTING(T)                                                                                        \
  template void gather_rows<T>(const Stream&, const T*, const ExpertRows&, T*, int64_t, int64_t);                      \
  template void place_rows<T>(const Stream&, const T*, const ExpertRows&, const int64_t*, T*, int64_t);                \
  template void combine_rows<T>(const Stream&, const T*, const T*, const float*, const int64_t*, T*, int64_t, int64_t, \
                                int64_t);

ATHANOR_CUDA_ROUTING(float)
ATHANOR_CUDA_ROUTING(Bf16)

}  // namespace athanor::kernels::cuda
