// One forward and one backward alternate (PipeDream-flush; Narayanan et al. 2021, section 2.2.1). A rank begins with as
// many forwards as there are ranks behind it, so that it never holds more than ranks − rank microbatches.

#include <algorithm>

#include "layout/schedules/schedules.h"

namespace athanor::inline layout::schedules {
namespace {

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

}  // namespace

const Kind kOneForwardOneBackward{"1f1b", one_f_one_b_actions, require_one_f_one_b};

}  // namespace athanor::inline layout::schedules
