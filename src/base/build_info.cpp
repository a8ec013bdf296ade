#include "base/build_info.h"

namespace athanor {

// Weak: libathanor has another definition, which CMake writes (cmake/build_info.cpp.in).
__attribute__((weak)) const BuildInfo& build_info() {
  static const BuildInfo unknown{"unknown", "unknown", "unknown", "", "", "", "", "", ""};
  return unknown;
}

}  // namespace athanor
