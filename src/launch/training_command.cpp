#include "launch/training_command.h"

#include <filesystem>

#include "base/error.h"
#include "config/toml_reader.h"

namespace athanor::launch {

std::optional<RunConfig> training_config(const std::vector<std::string>& command, const std::string& own_program) {
  const bool is_train = command.size() > 2 && command[1] == "train" &&
                        (command[0] == own_program || std::filesystem::path(command[0]).filename() == "athanor");
  if (!is_train) return std::nullopt;
  std::string file;
  std::vector<std::string> overrides;
  for (size_t i = 2; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (word == "--set" && i + 1 < command.size())
      overrides.push_back(command[++i]);
    else if (word.starts_with("--set="))
      overrides.push_back(word.substr(6));
    else if (file.empty() && !word.starts_with("-"))
      file = word;
    else
      return std::nullopt;
  }
  try {
    return load_run_config(file, overrides);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace athanor::launch
