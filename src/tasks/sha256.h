#pragma once
// SHA-256 (FIPS 180-4), with which lm_eval names documents and prompts in its lines of samples.

#include <string>
#include <string_view>

namespace athanor::tasks {

/// Returns the 64 hexadecimal digits.
std::string sha256_hex(std::string_view text);

}  // namespace athanor::tasks
