#pragma once
// What tasks there are, for `athanor eval --list`.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace athanor::tasks {

/// A score of a known model, with the place where it was published.
struct PublishedScore {
  std::string model, metric;
  double value = 0;
  std::optional<int64_t> shots;
  std::string source;
};

struct TaskSummary {
  std::string name, alias;
  bool is_group = false;
  std::vector<std::string> members;  ///< the tasks and groups in a group
  std::string output_type;           ///< "" for a group
  std::optional<double> chance;
  int64_t num_fewshot = 0;
  std::string data;  ///< base name of the files of rows
  std::vector<std::string> metrics;
  std::vector<PublishedScore> published;
  std::string file;
};

/// Returns every task and group of the folders and of those that come with the program, by name. Tags are left out.
/// @throws ConfigError for a file that cannot be used.
std::vector<TaskSummary> list_tasks(const std::vector<std::filesystem::path>& include_paths);

/// Returns the scores of guessing of the tasks that come with the program, by name, where their files state them.
std::map<std::string, double> shipped_chances();

/// Returns a table of them, for a terminal.
std::string format_task_list(const std::vector<TaskSummary>& tasks);

/// Returns the folder of the task files that come with the program.
std::filesystem::path shipped_tasks_folder();

}  // namespace athanor::tasks
