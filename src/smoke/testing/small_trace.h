#pragma once
// For tests: a trace of a few tensors.

#include "smoke/smoke_trace.h"

namespace athanor::inline smoke {

inline SmokeTrace small_trace() {
  return {{{"version", "0.1.0"}, {"commit", "abc"}, {"processor", "A name of several words"}},
          {{"dense",
            {{0, "initial", "w", "2x3", "float32", "aa"},
             {1, "forward.0", "mlp", "1x2x3", "float32", "bb"},
             {1, "gradient", "w", "2x3", "float32", "cc"},
             {1, "update", "w", "2x3", "float32", "dd"}}},
           {"sparse", {{0, "initial", "w", "2x3", "float32", "ee"}}}},
          {}};
}

}  // namespace athanor::inline smoke
