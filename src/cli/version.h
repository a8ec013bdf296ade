#pragma once
// The text of `athanor --version`.

#include <string>

namespace athanor::inline cli {

/// Returns "athanor 0.1.0 (COMMIT)" as the first line, and below it what the program was built with and finds here.
/// Opens no library, so that it answers at once.
std::string version_text();

}  // namespace athanor::inline cli
