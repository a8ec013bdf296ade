// checkpoint.writers: who writes what several data ranks hold identically.

#include <gtest/gtest.h>

#include <set>

#include "arch/inventory.h"
#include "layout/memory.h"
#include "saves/testing/ranks.h"
#include "train/testing/batches.h"

namespace athanor::checkpoint_writers_test {
namespace {

class CheckpointWriters : public Ranks {
 protected:
  // The tensor, the slice and the hash of each piece: all but the place.
  static std::set<std::string> pieces_of(const CheckpointReader& checkpoint) {
    std::set<std::string> pieces;
    for (const Piece& piece : checkpoint.manifest().pieces)
      pieces.insert(piece.tensor_name() + " " + slice_text(piece.slice()) + " " + piece.hash.text());
    EXPECT_EQ(pieces.size(), checkpoint.manifest().pieces.size());
    return pieces;
  }
  static std::map<int, double> bytes_by_rank(const CheckpointReader& checkpoint) {
    std::map<int, double> bytes;
    for (const Piece& piece : checkpoint.manifest().pieces)  // pieces-00003-00000.safetensors
      bytes[std::stoi(piece.file_name().substr(7, 5))] += static_cast<double>(piece.num_bytes());
    return bytes;
  }

  // Trains for a step, saves, continues from there for another, and saves.
  void expect_same_pieces(const Degrees& degrees) const {
    std::set<std::string> scattered[2];
    for (const char* writers : {"scattered", "first"}) {
      SCOPED_TRACE(degrees.text() + " " + writers);
      RunConfig run = with_few_microbatches(config(degrees, degrees.text() + writers));
      run.checkpoint.writers = writers;
      on_ranks(run, [](TrainState& state) {
        initialize(state);
        train(state, 1);
        save_checkpoint(state);
      });
      on_ranks(run, [&](TrainState& state) {
        EXPECT_TRUE(load_newest_checkpoint(state, RunFolder{run.train.run_dir}.checkpoints()));
        train(state, 1);
        save_checkpoint(state);
      });
      for (const int step : {1, 2}) {
        const auto pieces = pieces_of(CheckpointReader::open(checkpoint_of(run, step)));
        auto& expected = scattered[step - 1];
        if (expected.empty()) expected = pieces;
        EXPECT_EQ(pieces, expected) << "step " << step;
      }
      EXPECT_NE(scattered[0], scattered[1]);
    }
  }
};
using TestAllCheckpointWriters = CheckpointWriters;

// The layouts together have every sharding, tensor ranks, and stages.
TEST_F(CheckpointWriters, TheSamePiecesAreWrittenEitherWayAndTheRunGoesOnWithTheSameBits) {
  for (const size_t i : {0, 1, 3, 6}) expect_same_pieces(kLayouts[i]);
  expect_same_pieces({1, 2, 1, "optimizer", 1, 2});
}

TEST_F(TestAllCheckpointWriters, TheSamePiecesAreWrittenEitherWayAndTheRunGoesOnWithTheSameBits) {
  for (const Degrees& degrees : kLayouts) expect_same_pieces(degrees);
}

TEST_F(CheckpointWriters, EachRankWritesWhatTheEstimateSays) {
  for (const Degrees& degrees : kLayouts) {
    for (const char* writers : {"scattered", "first"}) {
      SCOPED_TRACE(degrees.text() + " " + writers);
      RunConfig run = config(degrees, degrees.text() + writers);
      run.checkpoint.writers = writers;
      std::vector<double> estimate;
      on_ranks(run, [&](TrainState& state) {
        initialize(state);
        save_checkpoint(state);
        if (state.model.mesh.is_first())
          estimate = count_written_bytes(run, state.model.mesh.layout(), value_of<Writers>(writers));
      });
      double sum = 0;
      auto written = bytes_by_rank(CheckpointReader::open(checkpoint_of(run, 0)));
      for (size_t rank = 0; rank < estimate.size(); ++rank) {
        sum += estimate[rank];
        EXPECT_EQ(written[static_cast<int>(rank)] > 0, estimate[rank] > 0) << "rank " << rank;
      }
      const double all = 12 * static_cast<double>(count_parameters(run.model));
      EXPECT_NEAR(sum, all, 1000 * all * std::numeric_limits<double>::epsilon());
    }
  }
}

}  // namespace
}  // namespace athanor::checkpoint_writers_test
