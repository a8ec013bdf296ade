// The formula compared with the relay that sends, on networks and disks whose time is computed.
#include "staging/prediction.h"

#include <gtest/gtest.h>

#include "staging/testing/relay_run.h"

namespace athanor::staging::prediction_test {

double measure_s(const PredictionInput& input, int num_nodes) {
  const auto chunk_bytes = static_cast<uint64_t>(input.chunk_bytes);
  const RelayRun run({.num_nodes = num_nodes,
                      .num_chunks = static_cast<uint64_t>(input.bytes / input.chunk_bytes),
                      .chunk_bytes = chunk_bytes,
                      .link = {input.link_bytes_per_s, input.latency_s},
                      .source_bytes_per_s = input.source_bytes_per_s,
                      .disk_bytes_per_s = input.disk_bytes_per_s});
  EXPECT_TRUE(run.all_done() && run.all_right);
  for (const auto& written : run.written) EXPECT_EQ(written.size(), run.setting.num_chunks);
  return run.clock.now_s();
}

// The size of chunks is scaled down with all rates, so that the memory of thousands of nodes is small.
constexpr double kChunk = 2048;

PredictionInput input_of(double chunks, double source, double link, double disk, double latency_s) {
  return {chunks * kChunk, kChunk, source * kChunk, link * kChunk, disk * kChunk, latency_s};
}

// On many nodes only every third case has its turn if `with_all` is false.
void expect_15_percent(bool with_all) {
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
      if (!with_all && nodes > 64 && (i + static_cast<size_t>(nodes)) % 3 != 0) continue;
      const double measured = measure_s(cases[i], nodes), predicted = predict_s(cases[i], nodes);
      EXPECT_NEAR(predicted / measured, 1, 0.15) << nodes << " nodes, case " << i << ": " << measured << " s";
    }
  }
}

TEST(Prediction, IsWithin15PercentOfTheRelayWhateverIsTheSlowest) { expect_15_percent(/*with_all=*/false); }

TEST(TestAllPrediction, IsWithin15PercentOfTheRelayWhateverIsTheSlowestOnManyNodes) {
  expect_15_percent(/*with_all=*/true);
}

void expect_15_percent_on_4096_nodes(double chunks) {
  const PredictionInput input = input_of(chunks, 1000, 100, 200, 0.001);
  EXPECT_NEAR(predict_s(input, 4096) / measure_s(input, 4096), 1, 0.15);
}

TEST(Prediction, IsWithin15PercentOfTheRelayOn4096Nodes) { expect_15_percent_on_4096_nodes(16); }

TEST(TestAllPrediction, IsWithin15PercentOfTheRelayOn4096NodesWithMoreChunks) { expect_15_percent_on_4096_nodes(64); }

TEST(Prediction, TwoTreesNeedAFractionOfAChainsTimeOnManyNodes) {
  const PredictionInput input{10e9, 4 << 20, 2e9, 20e9, 2e9, 20e-6};
  EXPECT_LT(predict_s(input, 4096), predict_chain_s(input, 4096));
  EXPECT_LT(predict_s(input, 12288) / predict_s(input, 2), 1.01);
}

}  // namespace athanor::staging::prediction_test
