#pragma once
// What a rank of a run is doing, shown on the board of its node.

#include <functional>

#include "board/publisher.h"

namespace athanor {

struct RunPhases {
  board::Publisher board;
  std::function<void(board::Phase)> begins;  ///< if set, is called when a phase begins

  /// @param microbatch  −1 outside of forward and backward.
  void enter(board::Phase phase, int microbatch = -1) const {
    board.set_phase(phase, microbatch);
    if (begins) begins(phase);
  }
};

}  // namespace athanor
