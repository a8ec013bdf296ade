#include "launch/training_command.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "config/toml_reader.h"
#include "layout/fitted_batch.h"

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

std::function<int(int most)> hosts_that_fit(const LaunchPlan& plan, const std::string& own_program, int least) {
  const int per_host = plan.ranks.most(), hosts = static_cast<int>(plan.ranks.of_host.size());
  ATHANOR_CHECK(plan.ranks.total() == per_host * hosts,
                "--min-nodes needs the same number of ranks on each node, but there are {} on {} hosts; give --ppn",
                plan.ranks.total(), hosts);
  ATHANOR_CHECK(least <= hosts, "--min-nodes {}: expected at most the number of nodes in use, {}", least, hosts);
  return [config = training_config(plan.command, own_program), per_host, least](int most) {
    for (int number = most; number >= least; --number) {
      if (!config) return number;
      RunConfig fitted = *config;
      if (fit_to_ranks(fitted, number * per_host).empty()) return number;
    }
    return 0;
  };
}

void keep_first_hosts(LaunchPlan& plan, size_t number) {
  plan.allocation.keep_first(number);
  plan.ranks.of_host.resize(number);
}

}  // namespace athanor::launch
