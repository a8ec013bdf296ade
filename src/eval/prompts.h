#pragma once
// Where the prompts of generation come from: a list, a file of lines, or lines as they come. This header needs no
// libtorch.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace athanor::inline eval {

struct PromptText {
  std::string text;
  std::string name;  ///< for messages: "prompts.txt line 3"; empty for the only prompt of a command line
};

class PromptSource {
 public:
  virtual ~PromptSource() = default;
  /// Returns the next prompt, or nothing: there is none left (at_end()), or none has come yet.
  /// @param wait  called again and again while the next prompt has not come; null: do not wait.
  /// @throws DataError naming the line that is no prompt.
  virtual std::optional<PromptText> next(const std::function<void()>& wait) = 0;
  /// True if there are no more prompts; false also before it is known.
  virtual bool at_end() const = 0;
  /// Calls f with every prompt if they can be read once more later; else does nothing. To be called before next().
  /// @throws as next(); DataError if there is no prompt.
  virtual void check_all(const std::function<void(const PromptText&)>& f) const = 0;
};

/// The prompts of a command line; `option` names them in messages.
std::unique_ptr<PromptSource> listed_prompts(std::vector<std::string> texts, const std::string& option);

/// The lines of a file (text_lines.h), in a file of JSON lines (inputs.h) the field `prompt` of each; memory does not
/// grow with their number. Lines of standard input ("-") and of a pipe are prompts as they come.
/// @throws DataError if the file is not there, is a folder, or has the ending of another format; IoError if it cannot
/// be opened.
std::unique_ptr<PromptSource> prompts_of_file(const std::string& file);

}  // namespace athanor::inline eval
