#pragma once
// The functions that libathanor_core.so exports for the front end, which finds them by name (cli/core.h).

namespace athanor {

/// Declares the function that the library exports for a subcommand. `arguments` points to its struct in cli/core.h or
/// bench/arguments.h; the result is the exit code.
#define ATHANOR_CORE_ENTRY(name) \
  extern "C" __attribute__((visibility("default"))) int athanor_core_##name(const void* arguments)

}  // namespace athanor
