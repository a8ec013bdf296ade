#pragma once
// The processors that this process could run on before OpenMP was loaded. With OMP_PROC_BIND or OMP_PLACES, OpenMP
// binds the thread that loads it to one processor, so that later queries would find only that one.

#include <sched.h>

namespace athanor {

struct StartProcessors {
  cpu_set_t affinity;  ///< empty on a machine with more processors than cpu_set_t has bits (1,024)
  int count = 1;       ///< number of processors, or fewer if a control group's quota allows fewer (cpu_count)
};

/// Returns the state at the first call, which must come before the first library that needs OpenMP is loaded.
const StartProcessors& start_processors();

}  // namespace athanor
