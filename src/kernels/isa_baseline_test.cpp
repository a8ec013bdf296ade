// Every kernel at the level that all x86-64 machines have (elsewhere: the compiler's default), in its own namespace.

#include "kernels/testing/isa_levels.h"

// Headers from outside our namespace are included before the name is changed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/half.h"

#define kernels kernels_baseline
#define ATHANOR_EACH_ISA
#include "kernels/testing/isa_sources.h"
#undef kernels

namespace athanor::isa_levels {
Outputs baseline() { return kernels_baseline::test::IsaOutputs().all(); }
}  // namespace athanor::isa_levels
