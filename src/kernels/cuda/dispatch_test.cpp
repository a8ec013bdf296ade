#include "kernels/cuda/dispatch.h"

#include <algorithm>
#include <numeric>

#include "kernels/cuda/routing.h"
#include "kernels/cuda/testing/device.h"
#include "kernels/partial_sums.h"
#include "kernels/routing.h"

namespace athanor::kernels::dispatch_test {
namespace {

using namespace test;
using cuda::PeersOfHop;
using cuda::TokensOfHop;
using Ids = std::vector<int64_t>;

// Tokens whose choices are drawn from `experts` of which some belong to no peer, in chunks.
struct Hop {
  int64_t tokens, k, chunks, experts;
  PeersOfHop peers;
  bool even;  // cut into equal chunks
  Ids ids = {}, begins = {};

  Hop(int64_t num_tokens, int64_t num_choices, int64_t num_chunks, int64_t num_experts, PeersOfHop of, bool is_even)
      : tokens(num_tokens), k(num_choices), chunks(num_chunks), experts(num_experts), peers(of), even(is_even) {
    const auto x = numbers<float>(tokens * k, 3, static_cast<float>(experts));
    for (const float each : x)
      ids.push_back(each < -0.9f * static_cast<float>(experts) ? -1 : static_cast<int64_t>(std::abs(each)));
    for (int64_t c = 0; c <= chunks; ++c)
      begins.push_back(even ? tokens * c / chunks : c == chunks ? tokens : tokens * c * c / (chunks * chunks));
  }
  int64_t choices_for(int64_t token, int64_t peer) const {
    int64_t count = 0;
    for (int64_t j = 0; j < k; ++j) {
      const int64_t e = ids[static_cast<size_t>(token * k + j)] - peers.first_expert - peer * peers.experts_per_peer;
      count += e >= 0 && e < peers.experts_per_peer;
    }
    return count;
  }
  // Calls f(message, token), messages by chunk or by peer.
  template <class F>
  void for_rows(bool by_peer, F f) const {
    const int64_t outer = by_peer ? peers.count : chunks, inner = by_peer ? chunks : peers.count;
    for (int64_t a = 0; a < outer; ++a) {
      for (int64_t b = 0; b < inner; ++b) {
        const int64_t p = by_peer ? a : b, c = by_peer ? b : a;
        for (int64_t t = begins[static_cast<size_t>(c)]; t < begins[static_cast<size_t>(c + 1)]; ++t)
          if (choices_for(t, p) > 0) f(p, c, t);
      }
    }
  }
};

std::vector<Hop> hops() {
  std::vector<Hop> all;
  for (const int64_t chunks : {1, 3, 8}) {
    for (const bool even : {true, false}) {
      all.emplace_back(37, 3, chunks, 12, PeersOfHop{0, 3, 4}, even);
      all.emplace_back(700, 2, chunks, 40, PeersOfHop{8, 1, 17}, even);  // experts 25 and more are elsewhere
      all.emplace_back(5, 4, chunks, 6, PeersOfHop{0, 6, 1}, even);
      all.emplace_back(0, 2, chunks, 6, PeersOfHop{0, 3, 2}, even);
    }
  }
  return all;
}

class DispatchOn : public OnEachPlace {};
ATHANOR_ON_CUDA_PLACES(DispatchOn);

TEST_P(DispatchOn, RowsAreInTheOrderOfTheirDefinition) {
  for (const Hop& hop : hops()) {
    const int64_t n = hop.peers.count, most = hop.tokens * std::min(n, hop.k), messages = n * hop.chunks;
    const auto ids = put(hop.ids), begins = put(hop.begins);
    const TokensOfHop tokens{ids.data(), hop.tokens, hop.k, hop.chunks, hop.even ? nullptr : begins.data()};
    Ids rows, row_of(static_cast<size_t>(hop.tokens * n), -1), counts(static_cast<size_t>(messages), 0), by_chunk;
    hop.for_rows(/*by_peer=*/false, [&](int64_t p, int64_t c, int64_t t) {
      row_of[static_cast<size_t>(t * n + p)] = static_cast<int64_t>(rows.size());
      rows.push_back(t * n + p);
      counts[static_cast<size_t>(p * hop.chunks + c)] += cuda::count_of(1, hop.choices_for(t, p));
    });
    hop.for_rows(/*by_peer=*/true,
                 [&](int64_t p, int64_t, int64_t t) { by_chunk.push_back(row_of[static_cast<size_t>(t * n + p)]); });

    const auto keys = put(Ids(row_of.size(), -7)), count = put(Ids(counts.size(), -7));
    cuda::key_rows(stream(), tokens, hop.peers, keys.data());
    cuda::count_rows(stream(), tokens, hop.peers, count.data());
    const auto offsets = put(Ids(static_cast<size_t>(messages + 1), -7)),
               choice = put(Ids(static_cast<size_t>(most), -7));
    const auto row = put(Ids(row_of.size(), -7));
    const auto space = put(Ids(static_cast<size_t>(cuda::sort_choices_workspace(hop.tokens, messages)), -7));
    cuda::sort_choices(stream(), keys.data(), hop.tokens, n, 0, messages, offsets.data(), choice.data(), row.data(),
                       space.data());
    const auto starts = put(Ids(static_cast<size_t>(2 * messages + 1), -7)),
               order = put(Ids(static_cast<size_t>(most), -7));
    cuda::order_rows(stream(), count.data(), n, hop.chunks, starts.data(), order.data(), most);

    const auto first = [](Ids all, size_t size) { return all.resize(size), all; };
    EXPECT_EQ(first(choice.values(), rows.size()), rows);
    EXPECT_EQ(row.values(), row_of);
    EXPECT_EQ(count.values(), counts);
    EXPECT_EQ(first(order.values(), rows.size()), by_chunk);
    for (size_t i = rows.size(); i < static_cast<size_t>(most); ++i) EXPECT_EQ(order.values()[i], -7);
    Ids starts_of_chunks;
    for (int64_t c = 0, before = 0; c < hop.chunks; ++c) {
      starts_of_chunks.push_back(before);
      for (int64_t p = 0; p < n; ++p) before += cuda::rows_of_count(counts[static_cast<size_t>(p * hop.chunks + c)]);
    }
    EXPECT_EQ(first(starts.values(), starts_of_chunks.size()), starts_of_chunks);

    // Choices, as they are packed and unpacked; the peers are this rank, so what is sent is what arrives.
    const auto weights = numbers<float>(hop.tokens * hop.k, 5);
    const auto w = put(weights);
    const auto total = static_cast<int64_t>(rows.size());
    const auto packed = put(std::vector<int32_t>(static_cast<size_t>(most * 2 * hop.k), -7));
    const auto num_rows = offsets.data() + messages;
    cuda::pack_choices(stream(), w.data(), ids.data(), {choice.data(), n, order.data(), num_rows, most}, hop.k,
                       packed.data());
    const auto to_weights = put(garbage<float>(total * hop.k));
    const auto to_ids = put(Ids(static_cast<size_t>(total * hop.k), -7));
    cuda::unpack_choices(stream(), packed.data(), order.data(), total, hop.k, to_weights.data(), to_ids.data());
    std::vector<float> expected_weights;
    Ids expected_ids;
    for (const int64_t each : rows) {
      for (int64_t j = 0; j < hop.k; ++j) {
        expected_weights.push_back(weights[static_cast<size_t>(each / n * hop.k + j)]);
        expected_ids.push_back(hop.ids[static_cast<size_t>(each / n * hop.k + j)]);
      }
    }
    expect_same_bits(to_weights.values(), expected_weights, "weights");
    EXPECT_EQ(to_ids.values(), expected_ids);

    // Gradients of weights, each from the row of the peer that owns the expert.
    const auto gradients = numbers<float>(total * hop.k, 6);
    const auto from = put(gradients), out = put(garbage<float>(hop.tokens * hop.k));
    cuda::take_weight_gradients(stream(), from.data(), tokens, hop.peers, row.data(), out.data());
    std::vector<float> expected(static_cast<size_t>(hop.tokens * hop.k), 0);
    for (size_t r = 0; r < rows.size(); ++r) {
      const int64_t t = rows[r] / n, p = rows[r] % n;
      for (int64_t j = 0; j < hop.k; ++j) {
        const auto at = static_cast<size_t>(t * hop.k + j);
        if (hop.peers.peer_of(hop.ids[at]) == p)
          expected[at] = gradients[r * static_cast<size_t>(hop.k) + static_cast<size_t>(j)];
      }
    }
    expect_same_bits(out.values(), expected, "gradients of weights");
  }
}

TEST_P(DispatchOn, SpreadRowsHaveTheirPlaceInTheRoomOfTheirMessage) {
  for (const Hop& hop : hops()) {
    const int64_t n = hop.peers.count, messages = n * hop.chunks;
    Ids keys(static_cast<size_t>(hop.tokens * n), -1), row_of = keys, offsets(static_cast<size_t>(messages + 1), 0);
    int64_t rows = 0, room = 0;
    hop.for_rows(/*by_peer=*/false, [&](int64_t p, int64_t c, int64_t t) {
      keys[static_cast<size_t>(t * n + p)] = c * n + p;
      row_of[static_cast<size_t>(t * n + p)] = rows++;
      ++offsets[static_cast<size_t>(c * n + p + 1)];
    });
    for (const int64_t count : offsets) room = std::max(room, count);
    std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
    Ids spread(row_of.size(), -1), choices(static_cast<size_t>(messages * room), -1),
        used(static_cast<size_t>(messages), 0);
    hop.for_rows(/*by_peer=*/false, [&](int64_t p, int64_t c, int64_t t) {
      const int64_t row = (c * n + p) * room + used[static_cast<size_t>(c * n + p)]++;
      spread[static_cast<size_t>(t * n + p)] = row;
      choices[static_cast<size_t>(row)] = t * n + p;
    });
    const auto key = put(keys), offset = put(offsets), row = put(row_of), choice = put(Ids(choices.size(), -1));
    cuda::spread_rows(stream(), key.data(), offset.data(), hop.tokens, n, room, row.data(), choice.data());
    EXPECT_EQ(row.values(), spread);
    EXPECT_EQ(choice.values(), choices);

    // A row without a token has no weight and no expert.
    const auto total = static_cast<int64_t>(choices.size());
    const auto weights = put(numbers<float>(hop.tokens * hop.k, 5));
    const auto ids = put(hop.ids);
    const auto packed = put(std::vector<int32_t>(static_cast<size_t>(total * 2 * hop.k), -7));
    cuda::pack_choices(stream(), weights.data(), ids.data(),
                       {.choice_of_row = choice.data(), .peers = n, .most_rows = total}, hop.k, packed.data());
    const std::vector<int32_t> bytes = packed.values();
    for (size_t r = 0; r < choices.size(); ++r) {
      for (size_t j = 0; j < static_cast<size_t>(hop.k); ++j) {
        const size_t at = r * 2 * static_cast<size_t>(hop.k) + j;
        const int64_t token = choices[r] / n;
        EXPECT_EQ(bytes[at + static_cast<size_t>(hop.k)],
                  choices[r] < 0 ? -1 : hop.ids[static_cast<size_t>(token * hop.k) + j]);
        EXPECT_TRUE(choices[r] >= 0 || bytes[at] == 0);
      }
    }
  }
}

// Places of the rows of n peers for some tokens: of 8 peers `present` have one. Token 4 has none.
struct Places {
  static constexpr int64_t kTokens = 11;
  std::vector<int32_t> row_of;
  Ids wide;
  int64_t rows = 0;

  Places(int64_t n, int64_t present) {
    for (int64_t i = 0; i < kTokens * n; ++i) {
      const bool there = (i * 5 + i / n * 3) % 8 < present && i / n != 4;
      wide.push_back(there ? rows++ : -1);
      row_of.push_back(static_cast<int32_t>(wide.back()));
    }
  }
};

template <class T>
std::vector<T> with_negative_zeros(int64_t count) {
  auto x = numbers<T>(count, 4);
  for (size_t i = 0; i < x.size(); i += 3) store(x[i], -0.0f);
  return x;
}

TEST_P(DispatchOn, PartialSumsHaveTheBitsOfTheTreeOnTheCpu) {
  with_each_type([&](auto from_tag) {
    with_each_type([&](auto to_tag) {
      using From = decltype(from_tag);
      using To = decltype(to_tag);
      constexpr int64_t kTokens = Places::kTokens;
      for (const int64_t n : {1, 2, 3, 6, 8, 13, 70}) {
        for (const int64_t width : {1, 24, 520}) {
          for (const int64_t present : {8, 5, 1}) {
            const Places places(n, present);
            const auto x = with_negative_zeros<From>(places.rows * width);
            auto expected = garbage<To>(kTokens * width);
            sum_partials<From, To>(x.data(), places.row_of.data(), n, expected.data(), 0, kTokens, width);
            Ids later = places.wide;  // the same rows, counted from 1000
            for (int64_t& row : later) row += row >= 0 ? 1000 : 0;
            const auto from = put(x), place = put(later);
            const auto out = put(garbage<To>(kTokens * width));
            cuda::sum_partials<From, To>(stream(), from.data(), {place.data(), 1000, 0}, n, out.data(), kTokens, width);
            expect_same_bits(out.values(), expected, std::to_string(n) + " peers");
          }
        }
      }
    });
  });
}

TEST_P(DispatchOn, PartialSumsOfPeersThatAllHaveEachTokenNeedNoPlaces) {
  constexpr int64_t kPeers = 6, kTokens = 11, kOfPeer = 14, kWidth = 24;  // a peer has three rows of padding
  const auto x = with_negative_zeros<Bf16>(kPeers * kOfPeer * kWidth);
  std::vector<int32_t> row_of;
  for (int32_t i = 0; i < kTokens * kPeers; ++i) row_of.push_back(i % kPeers * kOfPeer + i / kPeers);
  auto expected = garbage<Bf16>(kTokens * kWidth);
  sum_partials<Bf16, Bf16>(x.data(), row_of.data(), kPeers, expected.data(), 0, kTokens, kWidth);
  const auto from = put(x), out = put(garbage<Bf16>(kTokens * kWidth));
  cuda::sum_partials<Bf16, Bf16>(stream(), from.data(), {nullptr, 0, kOfPeer}, kPeers, out.data(), kTokens, kWidth);
  expect_same_bits(out.values(), expected, "sums");
}

}  // namespace
}  // namespace athanor::kernels::dispatch_test
