#pragma once
// The answers to a task set's documents on disk while they are computed, so that an evaluation that was interrupted
// continues where it was.
//
// The file has a line for each document, in order, and a line after each window (evaluation.h), which is computed as a
// whole: only whole windows are taken up again, so that the result has the bits of one that was not interrupted.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/append_file.h"
#include "tasks/task_document.h"

namespace athanor::inline eval {

using Answers = std::vector<tasks::Answer>;

class AnswersJournal {
 public:
  /// Opens or creates the file. What an earlier process has left is kept if it belongs to the same evaluation, up to
  /// its last whole window. The file is this process's until the object is gone.
  /// @param identity  names what the answers depend on: model, tasks, rows, settings.
  /// @throws ConfigError if it is of another evaluation, or another process writes it; IoError.
  AnswersJournal(const std::filesystem::path& file, const std::string& identity);
  ~AnswersJournal();
  AnswersJournal(const AnswersJournal&) = delete;
  AnswersJournal& operator=(const AnswersJournal&) = delete;

  /// Returns the answers that are there, one entry for each document, and forgets them.
  std::vector<Answers> take_earlier() { return std::move(earlier_); }
  const std::filesystem::path& file() const { return file_; }
  /// Appends a window. @throws IoError.
  void append(const std::vector<Answers>& window);
  /// Removes the file: the results have been written.
  void remove();

 private:
  /// The file's lock, which ends with the object or the process. @throws ConfigError if another process has it.
  struct Lock {
    explicit Lock(const std::filesystem::path& file);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    int descriptor;
  };

  std::filesystem::path file_;
  Lock lock_;
  std::vector<Answers> earlier_;
  size_t total_ = 0;  ///< documents in the file
  std::optional<AppendFile> out_;
};

}  // namespace athanor::inline eval
