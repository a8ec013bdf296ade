#include "staging/relay.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "staging/testing/relay_run.h"

namespace athanor::staging::relay_test {

constexpr VirtualLink kLink{1e6, 1e-4};
const int kNodes[] = {1, 2, 3, 4, 7, 8, 20};

TEST(Relay, EveryNodeWritesWhatItLacksAndNothingElse) {
  for (const int nodes : kNodes) {
    const auto lacks = [](int node, uint64_t chunk) { return (static_cast<uint64_t>(node) * 7 + chunk) % 3 != 0; };
    const RelayRun run({.num_nodes = nodes, .num_chunks = 25, .chunk_bytes = 100, .link = kLink, .lacks = lacks});
    ASSERT_TRUE(run.all_done() && run.all_right) << nodes;
    for (int node = 0; node < nodes; ++node) {
      std::vector<uint64_t> expected, got = run.written[static_cast<size_t>(node)];
      for (const uint64_t chunk : run.chunks)
        if (lacks(node, chunk)) expected.push_back(chunk);
      std::sort(got.begin(), got.end());
      EXPECT_EQ(got, expected) << node << " of " << nodes;
    }
  }
}

// Libraries of MPI report a short message before a longer one that was sent earlier.
TEST(Relay, MessagesThatAreReportedOutOfOrderAreForwardedInOrder) {
  for (const int nodes : kNodes) {
    const VirtualLink link{1e6, 1e-4, 1e-3};  // a chunk takes 0.1 ms
    const RelayRun run({.num_nodes = nodes, .num_chunks = 50, .chunk_bytes = 100, .link = link});
    ASSERT_TRUE(run.all_done() && run.all_right) << nodes;
    for (int node = 0; node < nodes; ++node) {
      EXPECT_TRUE(run.relays[static_cast<size_t>(node)].damaged().empty()) << node << " of " << nodes;
      EXPECT_EQ(run.written[static_cast<size_t>(node)].size(), 50u) << node << " of " << nodes;
    }
  }
}

TEST(Relay, AChunkThatIsDamagedOnItsWayIsNotWrittenAndTheRankThatSentItIsNamedOnce) {
  for (const int nodes : {2, 3, 8, 20}) {
    int damaged_from = -1, damaged_to = -1;
    const auto damage = [&](int from, int to, std::byte* bytes, int64_t count) {
      if (damaged_to >= 0 || to == 0 || count < 150) return;
      bytes[count - 1] ^= std::byte{1};
      damaged_from = from;
      damaged_to = to;
    };
    const RelayRun run({.num_nodes = nodes, .num_chunks = 12, .chunk_bytes = 150, .link = kLink, .damage = damage});
    ASSERT_TRUE(run.all_done() && run.all_right) << nodes;
    int num_blamed = 0;
    for (int node = 0; node < nodes; ++node) {
      const auto& damaged = run.relays[static_cast<size_t>(node)].damaged();
      EXPECT_EQ(run.written[static_cast<size_t>(node)].size() + damaged.size(), 12u);
      for (const auto& one : damaged) {
        if (one.is_told) continue;
        ++num_blamed;
        EXPECT_EQ(one.from, damaged_from);
        EXPECT_EQ(node, damaged_to);
      }
    }
    EXPECT_EQ(num_blamed, 1) << nodes;
  }
}

TEST(Relay, ADamagedHeaderIsNoticedAsWell) {
  for (const size_t at : {0u, 4u, 8u, 16u, 24u}) {
    bool is_first = true;
    const auto damage = [&](int, int, std::byte* bytes, int64_t) {
      if (std::exchange(is_first, false)) bytes[at] ^= std::byte{2};
    };
    const RelayRun run({.num_nodes = 4, .num_chunks = 5, .chunk_bytes = 64, .link = kLink, .damage = damage});
    EXPECT_TRUE(run.all_done() && run.all_right) << at;
    const bool any =
        std::any_of(run.relays.begin(), run.relays.end(), [](const Relay& relay) { return !relay.damaged().empty(); });
    EXPECT_TRUE(any) << at;
  }
}

TEST(Relay, IfTheSourceFailsAllNodesEndAndKnowWhy) {
  for (const int nodes : kNodes) {
    for (const uint64_t at : {0u, 1u, 5u, 6u, 18u, 19u}) {
      const auto fails = [at](uint64_t chunk) { return chunk == 10 + at; };
      const RelayRun run(
          {.num_nodes = nodes, .num_chunks = 20, .chunk_bytes = 64, .link = kLink, .source_fails = fails});
      ASSERT_TRUE(run.all_done() && run.all_right) << nodes << " nodes, chunk " << at;
      EXPECT_TRUE(run.relays[0].failure());
      for (const auto& written : run.written) EXPECT_EQ(std::count(written.begin(), written.end(), 10 + at), 0);
      for (const Relay& relay : run.relays) EXPECT_EQ(relay.stop_reason(), "the source is gone");
    }
  }
}

TEST(Relay, ZerosAreNotSent) {
  ChunkBuffer buffer(1000);
  std::memset(buffer.payload(), 0, 1000);
  buffer.seal(3, 1000);
  EXPECT_EQ(buffer.message_bytes(), static_cast<int64_t>(sizeof(ChunkHeader)));
  EXPECT_TRUE(buffer.is_intact(buffer.message_bytes()));
  std::memset(buffer.payload(), 1, 1000);
  buffer.expand_zeros();
  EXPECT_EQ(buffer.payload()[999], std::byte{0});
}

}  // namespace athanor::staging::relay_test
