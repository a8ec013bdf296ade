#pragma once
// Which tasks, groups and tags there are in folders of task files, and what a selection of names means.
//
// The rules are those of lm_eval's TaskManager: names from later folders replace those from earlier ones, tags stand
// for their tasks by name. A group gives the keys that it does not use itself to its tasks.

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tasks/task_config.h"

namespace athanor::tasks {

/// A task or a group by its name: the keys of its file, with those of what it includes.
struct TaskEntry {
  bool is_group = false;
  nlohmann::ordered_json keys;
  KeySource source;
};

/// Returns the entries of a file. One document may stand for several tasks (athanor.for_each), and a file may have
/// several documents. @throws ConfigError with file and line.
std::vector<TaskEntry> read_task_file(const std::filesystem::path& file);

/// Tasks and groups that names stand for.
struct SelectedTasks {
  std::vector<TaskConfig> tasks;  ///< each once, in the order of lm_eval
  std::vector<TaskGroup> groups;
};

class TaskIndex {
 public:
  /// Reads every .yaml file of the folders. A file that cannot be read is remembered, and named if a name is missing.
  /// @throws ConfigError for a folder that is not there.
  explicit TaskIndex(const std::vector<std::filesystem::path>& folders);

  /// @param names  of tasks, groups or tags, patterns of names with * and ?, or paths of .yaml files. @throws
  /// ConfigError, with the nearest name.
  SelectedTasks select(const std::vector<std::string>& names) const;

  const std::map<std::string, TaskEntry>& entries() const { return entries_; }
  const std::vector<std::string>& unreadable() const { return unreadable_; }

 private:
  friend class TaskSelector;
  void add(TaskEntry entry, std::map<std::string, TaskEntry>& of_folder);

  std::map<std::string, TaskEntry> entries_;
  std::map<std::string, std::set<std::string>> tags_;
  std::vector<std::string> unreadable_;  // messages
};

}  // namespace athanor::tasks
