// All forwards, then all backwards (Huang et al., GPipe, 2019): every rank holds every microbatch at once.

#include "layout/schedules/schedules.h"

namespace athanor::inline layout::schedules {
namespace {

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

}  // namespace

const Kind kGpipe{"gpipe", gpipe_actions, require_gpipe};

}  // namespace athanor::inline layout::schedules
