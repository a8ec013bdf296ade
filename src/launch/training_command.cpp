#include "launch/training_command.h"

#include <filesystem>

#include "base/error.h"
#include "config/toml_reader.h"

namespace athanor::launch {

std::optional<TrainingWords> training_words(const std::vector<std::string>& command) {
  if (command.size() < 3 || command[1] != "train") return std::nullopt;
  TrainingWords words;
  for (size_t i = 2; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (word == "--set" && i + 1 < command.size())
      words.overrides.push_back(command[++i]);
    else if (word.starts_with("--set="))
      words.overrides.push_back(word.substr(6));
    else if (words.config.empty() && !word.starts_with("-"))
      words.config = word;
    else
      return std::nullopt;
  }
  return words;
}

bool is_athanor(const std::vector<std::string>& command, const std::string& own_program) {
  return command[0] == own_program || std::filesystem::path(command[0]).filename() == "athanor";
}

void require_training_config(const std::vector<std::string>& command, const std::string& own_program) {
  const auto words = training_words(command);
  if (words && !words->config.empty() && is_athanor(command, own_program))
    load_run_config(words->config, words->overrides);
}

std::optional<RunConfig> training_config(const std::vector<std::string>& command, const std::string& own_program) {
  const auto words = training_words(command);
  if (!words || !is_athanor(command, own_program)) return std::nullopt;
  try {
    return load_run_config(words->config, words->overrides);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace athanor::launch
