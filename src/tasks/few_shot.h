#pragma once
// Few-shot examples: which rows a document gets, by the rules of lm_eval's ContextSampler and FirstNSampler.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tasks/python_random.h"
#include "tasks/task_rows.h"

namespace athanor::tasks {

/// Where a task's examples come from.
struct ExampleSource {
  RowSelection rows;                 ///< if the task file has no samples
  bool leaves_out_document = false;  ///< an example that equals the document is not used
};

/// The examples of one task, with one generator over its documents in order.
class ExamplePool {
 public:
  /// Reads the rows into memory, not yet parsed. @param task  must outlive the pool.
  ExamplePool(const TaskConfig& task, const ExampleSource& source, uint64_t seed);

  /// Returns `n` examples for a document, with the fields of process_docs. Call it for the documents in their order.
  /// @throws DataError if there are too few.
  std::vector<nlohmann::ordered_json> draw(int64_t n, const nlohmann::ordered_json& document);

 private:
  nlohmann::ordered_json example(size_t index) const;
  std::vector<nlohmann::ordered_json> take_first(size_t n, const Value* document) const;
  std::vector<nlohmann::ordered_json> draw_from_rest(size_t n, const Value& document);

  const TaskConfig& task_;
  bool leaves_out_document_;
  std::vector<RawRow> rows_;
  PythonRandom random_;
};

}  // namespace athanor::tasks
