// 1f1b over several stages of each rank (Narayanan et al. 2021, section 2.2.2). Microbatches go through in groups; a
// group has as many as there are ranks, and goes through the first chunk, then through the second, etc. The bubble
// shrinks by the number of chunks, but more microbatches are held, and the number of messages is multiplied by the
// number of chunks.

#include "layout/schedules/schedules.h"

namespace athanor::inline layout::schedules {
namespace {

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

const Kind kInterleaved{"interleaved_1f1b", interleaved_actions, require_interleaved};

}  // namespace athanor::inline layout::schedules
