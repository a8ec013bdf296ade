#pragma once
// Answers the requests of a task set's documents with a model.
//
// The first rank reads documents and makes tokens of their requests, window by window: a window is as many documents as
// have together a set number of tokens. Its sequences are packed into batches (token_forest.h), which all ranks score
// (forest_scorer.h) while the first rank prepares the next window. Memory does not grow with the number of documents,
// and no bit depends on the ranks, since neither windows nor batches do.

#include <cstdint>
#include <functional>
#include <vector>

#include "eval/answers_journal.h"
#include "eval/request_tokens.h"
#include "model/model_state.h"
#include "tasks/task_set.h"

namespace athanor::inline eval {

struct EvaluationOptions {
  int64_t batch_tokens = 8192;               ///< tokens that a data rank computes at once
  int64_t window_tokens = int64_t{1} << 21;  ///< tokens of a window, before beginnings are shared
  bool refuse_truncation = false;            ///< a request that is too long for the model is an error
  int64_t multiple_of = 1;                   ///< batches are filled up to such a number of tokens (forest_scorer.h)
};

struct EvaluationCounts {
  int64_t documents = 0, requests = 0;
  int64_t tokens = 0;            ///< in all sequences, as if each were read by itself
  int64_t computed_tokens = 0;   ///< those that the model has read
  int64_t taken_up = 0;          ///< documents that an earlier process has answered; they count above, not below
  int64_t truncated = 0;         ///< requests whose context lost its beginning
  int64_t truncated_task = -1;   ///< the task of the first of them
  bool was_interrupted = false;  ///< documents are missing
};

/// What the first rank knows of an evaluation.
struct EvaluationInput {
  const tasks::TaskSet* tasks = nullptr;
  const RequestEncoder* encoder = nullptr;
  AnswersJournal* journal = nullptr;  ///< null: none is kept
  /// called for each document in order, with its answers
  std::function<void(const tasks::TaskDocument&, const Answers&)> answered;
  /// is told the documents that were read or scored, while other ranks may wait; any thread calls it. Null: no one is
  std::function<void(int64_t)> worked = {};
  /// is asked before every four batches of each data rank; true ends the evaluation. Null: nothing ends it
  std::function<bool()> must_end = {};
  bool shows_progress = true;  ///< on a terminal
};

/// Answers all documents. Collective over the model's mesh; what it returns is of use on the first rank only.
/// @param input  read on the first rank only.
/// @throws DataError on the first rank, naming task and document: a row, or a request that does not fit the model; and
/// IoError. All ranks have left the evaluation then.
EvaluationCounts evaluate(ModelState& model, const EvaluationInput& input, const EvaluationOptions& options);

/// Makes the tokens of all requests, and keeps none: finds before a training what evaluate() would refuse.
/// @param input  `tasks`, `encoder` and `worked` are read.
/// @throws DataError and IoError, as evaluate().
void check_requests(const EvaluationInput& input, const EvaluationOptions& options);

}  // namespace athanor::inline eval
