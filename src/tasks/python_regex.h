#pragma once
// re.sub of Python, for the patterns whose meaning PCRE2 shares. Others are refused.

#include <cstdint>
#include <string>
#include <string_view>

namespace athanor::tasks {

/// re.sub(pattern, by, text, count). 0: all. @throws PythonError for a pattern or a replacement that is wrong, or that
/// this form does not have.
std::string regex_replace(std::string_view text, std::string_view pattern, std::string_view by, int64_t count = 0);

}  // namespace athanor::tasks
