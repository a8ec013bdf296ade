#include "layout/schedules/schedules.h"

#include <algorithm>

namespace athanor::inline layout::schedules {
namespace {

// All forwards, then all backwards (Huang et al., GPipe, 2019): every rank holds every microbatch at once.

std::vector<Action> gpipe_actions(int /*rank*/, const Shape& shape) {
  std::vector<Action> actions;
  for (const Work work : {Work::kForward, Work::kBackward}) {
    for (int m = 0; m < shape.microbatches; ++m) actions.push_back({work, m, 0});
  }
  return actions;
}

void require_gpipe(int /*ranks*/, int chunks, int64_t microbatches, Findings& found) {
  require_one_chunk("gpipe", chunks, found);
  found.require(microbatches >= 1, "pipeline_schedule \"gpipe\" needs a microbatch, and there are {}: {}", microbatches,
                kMoreMicrobatches);
}

// One forward and one backward alternate (PipeDream-flush; Narayanan et al. 2021, section 2.2.1). A rank begins with as
// many forwards as there are ranks behind it, so that it never holds more than ranks − rank microbatches.

std::vector<Action> one_f_one_b_actions(int rank, const Shape& shape) {
  std::vector<Action> forwards, backwards;
  for (int m = 0; m < shape.microbatches; ++m) {
    forwards.push_back({Work::kForward, m, 0});
    backwards.push_back({Work::kBackward, m, 0});
  }
  return one_in_turn(forwards, backwards, shape.ranks - 1 - rank);
}

// With fewer microbatches than ranks, forwards and backwards never alternate. This costs only time, and a run warns
// about it.
void require_one_f_one_b(int /*ranks*/, int chunks, int64_t microbatches, Findings& found) {
  require_one_chunk("1f1b", chunks, found);
  found.require(microbatches >= 1, "pipeline_schedule \"1f1b\" needs a microbatch, and there are {}: {}", microbatches,
                kMoreMicrobatches);
}

// 1f1b over several stages of each rank (Narayanan et al. 2021, section 2.2.2). Microbatches go through in groups; a
// group has as many as there are ranks, and goes through the first chunk, then through the second, etc. The bubble
// shrinks by the number of chunks, but more microbatches are held, and the number of messages is multiplied by the
// number of chunks.

std::vector<Action> interleaved_actions(int rank, const Shape& shape) {
  std::vector<Action> forwards, backwards;
  for (int first = 0; first < shape.microbatches; first += shape.ranks) {
    for (int c = 0; c < shape.chunks; ++c) {
      for (int m = first; m < first + shape.ranks; ++m) {
        forwards.push_back({Work::kForward, m, c});
        backwards.push_back({Work::kBackward, m, shape.chunks - 1 - c});
      }
    }
  }
  // The first group passes through all chunks except the last, and twice through the ranks behind: there and back.
  return one_in_turn(forwards, backwards, (shape.chunks - 1) * shape.ranks + 2 * (shape.ranks - 1 - rank));
}

void require_interleaved(int ranks, int chunks, int64_t microbatches, Findings& found) {
  found.require(
      chunks >= 2,
      "pipeline_schedule \"interleaved_1f1b\" needs several stages on each rank, and virtual_stages is {}: set "
      "parallelism.virtual_stages to 2 or more, or parallelism.pipeline_schedule = \"1f1b\"",
      chunks);
  found.require(
      microbatches >= 1 && microbatches % ranks == 0,
      "pipeline_schedule \"interleaved_1f1b\" takes microbatches in groups of {}, one for each pipeline rank, "
      "and there are {}: {}; make that a multiple of {}",
      ranks, microbatches, kMoreMicrobatches, ranks);
}

}  // namespace

const Kind kGpipe{PipelineSchedule::kGpipe, gpipe_actions, require_gpipe};
const Kind kOneForwardOneBackward{PipelineSchedule::k1F1B, one_f_one_b_actions, require_one_f_one_b};
const Kind kInterleaved{PipelineSchedule::kInterleaved1F1B, interleaved_actions, require_interleaved};

}  // namespace athanor::inline layout::schedules
