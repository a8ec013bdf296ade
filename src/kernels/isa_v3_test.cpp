// Every kernel at x86-64-v3 (AVX2, FMA), in its own namespace. See isa_baseline_test.cpp.

#include "kernels/testing/isa_levels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/half.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define kernels kernels_v3
#define ATHANOR_EACH_ISA
#include "kernels/testing/isa_sources.h"
#undef kernels
#pragma GCC pop_options

namespace athanor::isa_levels {
Outputs v3() { return kernels_v3::test::IsaOutputs().all(); }
}  // namespace athanor::isa_levels
#else
namespace athanor::isa_levels {
Outputs v3() { return {}; }
}  // namespace athanor::isa_levels
#endif
