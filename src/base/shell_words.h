#pragma once
// Words as a shell reads them: for commands that are printed, and may be pasted.

#include <string>
#include <vector>

namespace athanor {

/// Returns a word in quotes if a shell would read it as something else: "a b" as 'a b'.
std::string shell_word(const std::string& word);

/// Returns a command, its words quoted where that is needed.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace athanor
