#include "base/library_bits.h"

#include <cstdlib>

namespace athanor {

void ask_for_reproducible_library() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("intel")) ::setenv("MKL_CBWR", "AUTO,STRICT", /*overwrite=*/0);
#endif
}

}  // namespace athanor
