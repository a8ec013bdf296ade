#pragma once
// What this process might run on before OpenMP was loaded: with OMP_PROC_BIND or OMP_PLACES that binds the thread that
// loads it to one processor, which would then look like all there is.

#include <sched.h>

namespace athanor {

struct StartProcessors {
  cpu_set_t affinity;
  int count = 1;  ///< of them, or fewer where a control group's quota allows fewer (cpu_count)
};

/// As it was at the first call, which is to come before the first library that needs OpenMP.
const StartProcessors& start_processors();

}  // namespace athanor
