#include "base/start_processors.h"

#include "base/process.h"

namespace athanor {

const StartProcessors& start_processors() {
  static const StartProcessors found = [] {
    StartProcessors now;
    CPU_ZERO(&now.affinity);
    ::sched_getaffinity(0, sizeof(now.affinity), &now.affinity);
    now.count = cpu_count();
    return now;
  }();
  return found;
}

}  // namespace athanor
