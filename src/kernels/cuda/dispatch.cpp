#include "kernels/cuda/dispatch.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

namespace athanor::kernels::cuda {
namespace {

/// Returns the chunk that a token is in.
ATHANOR_INLINE int64_t chunk_of(const TokensOfHop& of, int64_t token) {
  // token ≥ tokens · c / chunks, rounded down, holds up to this c.
  if (!of.chunk_begin) return ((token + 1) * of.chunks - 1) / of.tokens;
  int64_t chunk = 0, end = of.chunks;  // the last chunk that begins at the token or before it
  while (end - chunk > 1) {
    const int64_t middle = (chunk + end) / 2;
    (of.chunk_begin[middle] <= token ? chunk : end) = middle;
  }
  return chunk;
}

ATHANOR_INLINE int64_t begin_of_chunk(const TokensOfHop& of, int64_t chunk) {
  if (chunk == of.chunks) return of.tokens;
  return of.chunk_begin ? of.chunk_begin[chunk] : of.tokens * chunk / of.chunks;
}

// Returns how many of a token's choices the peer owns.
ATHANOR_INLINE int64_t choices_for(const TokensOfHop& of, const PeersOfHop& peers, int64_t token, int64_t peer) {
  int64_t choices = 0;
  for (int64_t c = token * of.k; c < (token + 1) * of.k; ++c) choices += peers.peer_of(of.ids[c]) == peer;
  return choices;
}

}  // namespace

void key_rows(const Stream& stream, const TokensOfHop& tokens, const PeersOfHop& peers, int64_t* keys) {
  const int64_t n = peers.count;
  for_each_index(stream, "key_rows", tokens.tokens * n, [=] ATHANOR_BODY(int64_t i) {
    const int64_t token = i / n, peer = i % n;
    keys[i] = choices_for(tokens, peers, token, peer) > 0 ? chunk_of(tokens, token) * n + peer : -1;
  });
}

void spread_rows(const Stream& stream, const int64_t* keys, const int64_t* offsets, int64_t tokens, int64_t peers,
                 int64_t room, int64_t* row_of, int64_t* choice_of_row) {
  for_each_index(stream, "spread_rows", tokens * peers, [=] ATHANOR_BODY(int64_t i) {
    if (keys[i] < 0) return;
    const int64_t place = row_of[i] - offsets[keys[i]], row = keys[i] * room + place;
    row_of[i] = place < room ? row : -1;
    if (place < room) choice_of_row[row] = i;
  });
}

void count_rows(const Stream& stream, const TokensOfHop& tokens, const PeersOfHop& peers, int64_t* counts) {
  for_each_team<kThreads>(
      stream, "count_rows", peers.count * tokens.chunks, [=] ATHANOR_BODY(const Team<kThreads>& team) {
        const int64_t peer = team.index() / tokens.chunks, chunk = team.index() % tokens.chunks;
        const int64_t begin = begin_of_chunk(tokens, chunk), end = begin_of_chunk(tokens, chunk + 1);
        // The two halves of a word are sums below 2³¹, so that they can be added as one.
        const int64_t count = team.sum<int64_t>([=](int thread) {
          int64_t own = 0;
          for (int64_t t = begin + thread; t < end; t += kThreads) {
            const int64_t choices = choices_for(tokens, peers, t, peer);
            own += count_of(choices > 0, choices);
          }
          return own;
        });
        team.each([=](int thread) {
          if (thread == 0) counts[team.index()] = count;
        });
      });
}

void order_rows(const Stream& stream, const int64_t* counts, int64_t peers, int64_t chunks, int64_t* begins,
                int64_t* by_chunk, int64_t most_rows) {
  const int64_t messages = peers * chunks;
  int64_t *chunk_begins = begins, *peer_begins = begins + messages;  // message (p, c) is at p · chunks + c
  for_each_team<kThreads>(stream, "order_rows: begins", 1, [=] ATHANOR_BODY(const Team<kThreads>& team) {
    int64_t by_peer = 0, by_chunk_total = 0;
    for (int64_t first = 0; first < messages; first += kThreads) {
      by_peer += team.scan<int64_t>(
          [=](int thread) { return first + thread < messages ? rows_of_count(counts[first + thread]) : 0; },
          [=](int thread, int64_t earlier) {
            if (first + thread < messages) peer_begins[first + thread] = by_peer + earlier;
          });
      const auto message = [=](int thread) { return (first + thread) % peers * chunks + (first + thread) / peers; };
      by_chunk_total += team.scan<int64_t>(
          [=](int thread) { return first + thread < messages ? rows_of_count(counts[message(thread)]) : 0; },
          [=](int thread, int64_t earlier) {
            if (first + thread < messages) chunk_begins[message(thread)] = by_chunk_total + earlier;
          });
    }
    team.each([=](int thread) {
      if (thread == 0) peer_begins[messages] = by_peer;
    });
  });
  for_each_index(stream, "order_rows", most_rows, [=] ATHANOR_BODY(int64_t i) {
    if (i >= peer_begins[messages]) return;
    int64_t message = 0, end = messages;  // the last message that begins at the row or before it
    while (end - message > 1) {
      const int64_t middle = (message + end) / 2;
      (peer_begins[middle] <= i ? message : end) = middle;
    }
    by_chunk[i] = chunk_begins[message] + i - peer_begins[message];
  });
}

void pack_choices(const Stream& stream, const float* weights, const int64_t* ids, const RowsToPack& rows, int64_t k,
                  int32_t* packed) {
  float* packed_weights = reinterpret_cast<float*>(packed);
  for_each_index(stream, "pack_choices", rows.most_rows * k, [=] ATHANOR_BODY(int64_t i) {
    const int64_t row = i / k, j = i % k;
    if (rows.num_rows && row >= *rows.num_rows) return;
    const int64_t at = rows.by_chunk ? rows.by_chunk[row] : row;
    const int64_t choice = rows.choice_of_row ? rows.choice_of_row[at] : at * rows.peers;
    const int64_t token = choice / rows.peers;
    packed_weights[row * 2 * k + j] = choice < 0 ? 0.0f : weights[token * k + j];
    packed[row * 2 * k + k + j] = choice < 0 ? -1 : static_cast<int32_t>(ids[token * k + j]);
  });
}

void unpack_choices(const Stream& stream, const int32_t* packed, const int64_t* by_chunk, int64_t rows, int64_t k,
                    float* weights, int64_t* ids) {
  const float* packed_weights = reinterpret_cast<const float*>(packed);
  for_each_index(stream, "unpack_choices", rows * k, [=] ATHANOR_BODY(int64_t i) {
    const int64_t row = i / k, j = i % k, to = (by_chunk ? by_chunk[row] : row) * k + j;
    weights[to] = packed_weights[row * 2 * k + j];
    ids[to] = packed[row * 2 * k + k + j];
  });
}

namespace {

constexpr int kLevels = 32;  // sums of 2^level peers, of which there are fewer than 2³¹

// A binary counter over peers: `sums[level]`, if it is there, is a sum of 2^level peers, of which at least one has a
// row. A peer without a row adds nothing, except that −0 becomes 0 at the end.
template <class From, class To, int N>
void sum_packs(const Stream& stream, const From* rows, const PartialRows& where, int64_t n, To* out, int64_t tokens,
               int64_t width) {
  const int64_t packs = width / N;
  for_each_index(stream, "sum_partials", tokens * packs, [=] ATHANOR_BODY(int64_t i) {
    const int64_t token = i / packs, at = i % packs * N;
    float sums[kLevels][N], sum[N] = {};
    uint32_t there = 0;  // the levels that have a sum
    bool all = true;
    const auto add_level = [&](int level, bool has_sum) {
      if (has_sum) {
        for (int l = 0; l < N; ++l) sum[l] = sums[level][l] + sum[l];
      } else {
        for (int l = 0; l < N; ++l) sum[l] = sums[level][l];
      }
    };
    for (int64_t p = 0; p < n; ++p) {
      const int64_t row = where.row_of ? where.row_of[token * n + p] : p * where.rows_of_peer + token;
      bool has_sum = row >= 0;
      all = all && has_sum;
      if (has_sum) {
        const Pack<From, N> pack = load_pack<N>(rows + (row - where.first_row) * width + at);
        for (int l = 0; l < N; ++l) sum[l] = load(pack.at[l]);
      }
      int level = 0;
      for (; (p >> level) & 1; ++level) {
        if ((there >> level) & 1) {
          add_level(level, has_sum);
          has_sum = true;
          there &= ~(uint32_t{1} << level);
        }
      }
      if (!has_sum) continue;
      for (int l = 0; l < N; ++l) sums[level][l] = sum[l];
      there |= uint32_t{1} << level;
    }
    bool has_sum = false;
    for (int level = 0; level < kLevels; ++level) {
      if ((there >> level) & 1) {
        add_level(level, has_sum);
        has_sum = true;
      }
    }
    Pack<To, N> result;
    const float absent = all ? -0.0f : 0.0f;
    for (int l = 0; l < N; ++l) store(result.at[l], has_sum ? sum[l] + absent : 0.0f);
    store_pack(out + token * width + at, result);
  });
}

}  // namespace

template <class From, class To>
void sum_partials(const Stream& stream, const From* rows, const PartialRows& where, int64_t n, To* out, int64_t tokens,
                  int64_t width) {
  constexpr int kWide = kPack<From> < kPack<To> ? kPack<From> : kPack<To>;
  if (can_pack<From>(width, rows) && can_pack<To>(width, out)) {
    sum_packs<From, To, kWide>(stream, rows, where, n, out, tokens, width);
  } else {
    sum_packs<From, To, 1>(stream, rows, where, n, out, tokens, width);
  }
}

void take_weight_gradients(const Stream& stream, const float* rows, const TokensOfHop& tokens, const PeersOfHop& peers,
                           const int64_t* row_of, float* out) {
  for_each_index(stream, "take_weight_gradients", tokens.tokens * tokens.k, [=] ATHANOR_BODY(int64_t i) {
    const int64_t peer = peers.peer_of(tokens.ids[i]), token = i / tokens.k;
    // + 0 turns −0 into 0, as a sum over all peers does.
    out[i] = peer < 0 ? 0.0f : rows[row_of[token * peers.count + peer] * tokens.k + i % tokens.k] + 0.0f;
  });
}

#define ATHANOR_CUDA_SUM_PARTIALS(From, To) \
  template void sum_partials<From, To>(const Stream&, const From*, const PartialRows&, int64_t, To*, int64_t, int64_t);

ATHANOR_CUDA_SUM_PARTIALS(float, float)
ATHANOR_CUDA_SUM_PARTIALS(float, Bf16)
ATHANOR_CUDA_SUM_PARTIALS(Bf16, float)
ATHANOR_CUDA_SUM_PARTIALS(Bf16, Bf16)

}  // namespace athanor::kernels::cuda
