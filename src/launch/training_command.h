#pragma once
// The configuration of a command that is a training, which `athanor launch` knows more about than of other commands;
// and on how many hosts it can continue if some are lost and no spare is left (--min-nodes).

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "launch/launcher_command.h"

namespace athanor::launch {

/// True if the first word of a command is this program. @param own_program  a path that also means `athanor`.
bool is_athanor(const std::vector<std::string>& command, const std::string& own_program);

/// What `athanor train CONFIG --set …` names.
struct TrainingWords {
  std::string config;
  std::vector<std::string> overrides;
};
/// Returns the words of a training; nothing for another subcommand, or one with other options, which its ranks refuse.
/// The program, which is the first word, is not looked at.
std::optional<TrainingWords> training_words(const std::vector<std::string>& command);

/// Refuses a training whose configuration every rank would refuse, before they are started.
/// @throws ConfigError.
void require_training_config(const std::vector<std::string>& command, const std::string& own_program);

/// Returns the configuration of `athanor train CONFIG --set …`; nothing for another command, or if its configuration is
/// refused, which its ranks will tell. @param own_program  a path that also means `athanor`.
std::optional<RunConfig> training_config(const std::vector<std::string>& command, const std::string& own_program);

/// Returns a function for FailoverLimits::fewer_hosts: the largest number of hosts from `least` to `most` that the
/// command can run on. A training needs a layout that its configuration allows, so that data and batch stay as they
/// are; another command runs on any number.
/// @throws ConfigError if places have different numbers of ranks, or if there are fewer hosts than `least`.
std::function<int(int most)> hosts_that_fit(const LaunchPlan& plan, const std::string& own_program, int least);

/// Uses the first hosts of the plan only. Their ranks stay as they are.
void keep_first_hosts(LaunchPlan& plan, size_t number);

}  // namespace athanor::launch
