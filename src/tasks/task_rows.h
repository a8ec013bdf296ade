#pragma once
// The rows of data sets: which files hold those of a task's split, and reading them one after the other.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tasks/task_config.h"

namespace athanor::tasks {

/// Returns the files with the rows of a split, or none if there is no such file in `data`. For the base name N and the
/// split S, the first that is there of: N_S.EXT; N/S.EXT; N/S-00000-of-0000n.parquet, and the others of the n; the same
/// in N/DATASET_NAME/. EXT is jsonl, ndjson or json, each also with .gz or .zst, or parquet; for rolling texts also txt
/// or md.
/// @throws DataError if some of n files are missing.
std::vector<std::filesystem::path> find_split(const TaskConfig& task, const std::filesystem::path& data,
                                              const std::string& split);

/// Returns the files of the split that is evaluated; if they are not there, N.EXT, and for rolling texts every file of
/// the folder N. @throws DataError with what was looked for, and what is in `data`.
std::vector<std::filesystem::path> find_evaluation_rows(const TaskConfig& task, const std::filesystem::path& data);

/// A row before it is parsed.
struct RawRow {
  std::string bytes, place;              ///< place: "file:line"
  bool is_json = true;                   ///< false: `bytes` is a text, the field "text" of the row
  nlohmann::ordered_json parse() const;  ///< @throws DataError with the byte at fault; a row is an object
};

/// Reads the rows of files in order.
class RowReader {
 public:
  explicit RowReader(std::vector<std::filesystem::path> files);
  ~RowReader();
  /// Replaces `row` by the next row. @return false at the end. @throws DataError for a file that cannot be read.
  bool next(RawRow& row);
  /// The number of rows that next() gave.
  int64_t position() const { return position_; }
  const std::vector<std::filesystem::path>& files() const { return files_; }

 private:
  struct Source;
  std::vector<std::filesystem::path> files_;
  size_t file_ = 0;
  int64_t position_ = 0;
  std::unique_ptr<Source> source_;
};

/// Rows of files that a condition selects, as runs of consecutive ones.
struct RowSelection {
  struct Run {
    int64_t begin, end;
  };
  std::vector<std::filesystem::path> files;
  std::vector<Run> runs;
  int64_t count() const;
};

/// Reads files once for several conditions; null: all rows. @param what  names each condition's task in messages.
std::vector<RowSelection> select_rows(const std::vector<std::filesystem::path>& files,
                                      const std::vector<const Template*>& conditions);

/// Reads the rows of selections in order. It continues with a file that it has open if it can.
class SelectionReader {
 public:
  void start(const RowSelection& selection);
  bool next(RawRow& row);

 private:
  const RowSelection* selection_ = nullptr;
  size_t run_ = 0;
  int64_t next_ = 0;
  std::unique_ptr<RowReader> reader_;
};

}  // namespace athanor::tasks
