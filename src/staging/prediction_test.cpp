// The formula compared with the relay that sends, on networks and disks whose time is computed.
#include "staging/prediction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <set>

#include "staging/relay.h"
#include "staging/testing/virtual_network.h"

namespace athanor::staging::prediction_test {

/// Runs the relay on all nodes until nothing moves. @return the time at which the last one was done.
double measure_s(const PredictionInput& input, int num_nodes) {
  VirtualClock clock;
  VirtualNetwork network(clock, num_nodes, {input.link_bytes_per_s, input.latency_s});
  std::set<int> touched;
  network.touched = [&](int node) { touched.insert(node); };
  const auto chunk_bytes = static_cast<uint64_t>(input.chunk_bytes);
  const auto num_chunks = static_cast<uint64_t>(input.bytes / input.chunk_bytes);
  std::vector<uint64_t> chunks(num_chunks);
  for (uint64_t i = 0; i < num_chunks; ++i) chunks[i] = i;
  const auto fill = [&](ChunkBuffer& buffer) {
    std::memset(buffer.payload(), static_cast<int>(buffer.position % 251) + 1, chunk_bytes);
    buffer.payload()[0] = std::byte{0};  // not all equal: zeros would not be sent
    buffer.seal(buffer.position, chunk_bytes);
  };
  VirtualDisk source(clock, input.source_bytes_per_s, fill, [&] { touched.insert(0); });
  std::deque<VirtualDisk> disks;
  std::deque<Relay> relays;
  std::vector<uint64_t> written(static_cast<size_t>(num_nodes));
  for (int node = 0; node < num_nodes; ++node) {
    disks.emplace_back(
        clock, input.disk_bytes_per_s, [&written, node](ChunkBuffer&) { ++written[static_cast<size_t>(node)]; },
        [&touched, node] { touched.insert(node); });
    relays.emplace_back(
        network.wire(node), RelayPlace{node, num_nodes, [](int other) { return other; }},
        RelayWork{chunk_bytes, chunks, [](uint64_t) { return true; }, node == 0 ? &source : nullptr, &disks.back()});
    touched.insert(node);
  }
  do {
    while (!touched.empty()) {
      const int node = *touched.begin();
      touched.erase(touched.begin());
      while (relays[static_cast<size_t>(node)].poll()) {
      }
    }
  } while (clock.advance());
  for (int node = 0; node < num_nodes; ++node) {
    EXPECT_TRUE(relays[static_cast<size_t>(node)].done()) << node;
    EXPECT_EQ(written[static_cast<size_t>(node)], num_chunks) << node;
  }
  return clock.now_s();
}

// The size of chunks is scaled down with all rates, so that the memory of thousands of nodes is small.
constexpr double kChunk = 2048;

PredictionInput input_of(double chunks, double source, double link, double disk, double latency_s) {
  return {chunks * kChunk, kChunk, source * kChunk, link * kChunk, disk * kChunk, latency_s};
}

TEST(Prediction, IsWithin15PercentOfTheRelayWhateverIsTheSlowest) {
  const PredictionInput cases[] = {
      input_of(64, 1000, 100, 1000, 0.001),   // links
      input_of(64, 50, 100, 1000, 0.001),     // the source
      input_of(64, 1000, 100, 40, 0.001),     // the disks
      input_of(64, 1000, 100, 1000, 0.01),    // a hop's latency is as long as a chunk
      input_of(64, 100, 100, 100, 0.001),     // all are equal
      input_of(200, 100000, 100, 100000, 0),  // many chunks
      input_of(3, 1000, 100, 1000, 0.001),    // few
  };
  for (const int nodes : {1, 2, 3, 4, 5, 8, 13, 64, 100, 300}) {
    for (size_t i = 0; i < std::size(cases); ++i) {
      const double measured = measure_s(cases[i], nodes), predicted = predict_s(cases[i], nodes);
      EXPECT_NEAR(predicted / measured, 1, 0.15) << nodes << " nodes, case " << i << ": " << measured << " s";
    }
  }
}

TEST(Prediction, IsWithin15PercentOfTheRelayOn4096Nodes) {
  const PredictionInput input = input_of(64, 1000, 100, 200, 0.001);
  EXPECT_NEAR(predict_s(input, 4096) / measure_s(input, 4096), 1, 0.15);
}

TEST(Prediction, TwoTreesNeedAFractionOfAChainsTimeOnManyNodes) {
  const PredictionInput input{10e9, 4 << 20, 2e9, 20e9, 2e9, 20e-6};
  EXPECT_LT(predict_s(input, 4096), predict_chain_s(input, 4096));
  EXPECT_LT(predict_s(input, 12288) / predict_s(input, 2), 1.01);
}

}  // namespace athanor::staging::prediction_test
