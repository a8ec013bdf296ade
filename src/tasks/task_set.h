#pragma once
// The tasks that a user selected, with their rows: a stream of documents, each with its text requests.
//
// Requests are those of lm_eval 0.4.13, byte for byte (ConfigurableTask.fewshot_context and construct_requests there):
// the same examples in the same order, and the same delimiters.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tasks/task_document.h"

namespace athanor::tasks {

struct TaskConfig;
struct TaskGroup;

struct TaskSelection {
  std::vector<std::string> names;  ///< tasks, groups, tags, patterns with * and ?, or paths of .yaml files
  std::vector<std::filesystem::path> include_paths;  ///< folders of users' task files; their names come first
  std::filesystem::path data;                        ///< folder of rows (task_rows.h)
  std::optional<int64_t> num_fewshot;                ///< none: the task's own number, or 0
  double limit = 0;                                  ///< 0: all; below 1: that share of the documents, rounded up
  uint64_t fewshot_seed = 1234;
};

/// Gives documents in order: all of the first task, then all of the second one.
class DocumentStream {
 public:
  virtual ~DocumentStream() = default;
  /// Replaces `document` by the next one. @return false at the end.
  /// @throws DataError naming task, file and row.
  virtual bool next(TaskDocument& document) = 0;
};

/// The leaf tasks of a selection in order, each once, with the groups that name them. Only few-shot examples are held
/// in memory; rows are read again by each stream.
class TaskSet {
 public:
  /// Reads the task files, counts the rows of every file, and builds the first document of every task.
  /// @param worked  is called after each part of the work, while others may wait for it.
  /// @throws ConfigError for an unknown name, or a task file that cannot be used; DataError for rows.
  static TaskSet load(const TaskSelection& selection, const std::function<void(int64_t)>& worked = {});

  TaskSet(TaskSet&&) noexcept;
  TaskSet& operator=(TaskSet&&) noexcept;
  ~TaskSet();

  /// Returns all documents of all tasks, in order. Each call begins anew and gives the same documents. The set must
  /// outlive the stream.
  std::unique_ptr<DocumentStream> documents() const;

  /// Returns the files with the rows of all tasks and their few-shot examples, each once.
  std::vector<std::filesystem::path> row_files() const;

  int64_t num_tasks() const;
  int64_t num_documents() const;                    ///< the sum over all tasks, with the limit
  int64_t num_documents(int64_t task) const;        ///< with the limit
  int64_t num_documents_there(int64_t task) const;  ///< without the limit
  const std::string& name(int64_t task) const;
  const std::string& alias(int64_t task) const;
  /// Returns the task's file as it counts: its keys, with what it includes and with the defaults.
  const TaskConfig& config(int64_t task) const;
  const std::vector<TaskGroup>& groups() const;  ///< in the order of lm_eval's results: a group, then its subgroups
  std::vector<std::string> groups_from_below() const;  ///< their names, each after its subgroups
  int64_t num_fewshot(int64_t task) const;
  /// Returns the stride of a rolling task's windows in tokens; 0: lm_eval's disjoint windows.
  int64_t stride(int64_t task) const;
  /// Returns the score that guessing gives on the task's first metric, if its file states it.
  std::optional<double> chance(int64_t task) const;

 private:
  struct State;
  explicit TaskSet(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace athanor::tasks
