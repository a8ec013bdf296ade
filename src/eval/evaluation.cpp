#include "eval/evaluation.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <future>
#include <optional>

#include "base/console.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "eval/forest_scorer.h"

namespace athanor::inline eval {
namespace {

struct Window {
  std::vector<tasks::TaskDocument> documents;
  std::vector<std::vector<std::vector<TokenRequest>>> sequences;  // those of each request, by document
  ForestBatches packed;
};

// Makes one window after the other.
class Preparation {
 public:
  Preparation(const EvaluationInput& input, const EvaluationOptions& options, tasks::DocumentStream& stream)
      : input_(input), options_(options), stream_(stream) {}

  // A window without documents is the end.
  Window next() {
    Window window;
    int64_t tokens = 0;
    while (tokens < options_.window_tokens) {
      const size_t first = window.documents.size();
      if (!read_some(window)) break;
      window.sequences.resize(window.documents.size());
      parallel_for(num_threads(), std::ssize(window.documents) - static_cast<int64_t>(first),
                   [&](int64_t i) { encode(window, first + static_cast<size_t>(i)); });
      for (size_t d = first; d < window.documents.size(); ++d) tokens += count_tokens(window.sequences[d]);
      if (input_.worked) input_.worked(std::ssize(window.documents) - static_cast<int64_t>(first));
    }
    pack(window);
    return window;
  }

 private:
  // Documents are encoded in blocks, since a window ends where its tokens are enough.
  static constexpr int kBlock = 16;
  static int num_threads() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

  bool read_some(Window& window) {
    for (int i = 0; i < kBlock; ++i) {
      tasks::TaskDocument document;
      if (!stream_.next(document)) return i > 0;
      window.documents.push_back(std::move(document));
    }
    return true;
  }

  void encode(Window& window, size_t index) const {
    const tasks::TaskDocument& document = window.documents[index];
    for (size_t r = 0; r < document.requests.size(); ++r) {
      const auto where = [&] {
        return fmt::format("{}, document {}, request {}", input_.tasks->name(document.task), document.doc_id, r + 1);
      };
      try {
        window.sequences[index].push_back(
            input_.encoder->encode(document.requests[r], input_.tasks->stride(document.task)));
      } catch (const DataError& error) {
        throw DataError(where() + ": " + error.what());
      }
      for (const TokenRequest& sequence : window.sequences[index].back()) {
        ATHANOR_CHECK_DATA(!options_.refuse_truncation || sequence.num_truncated == 0,
                           "{}: its {} tokens are {} more than the model reads ({}); leave out --no-truncation to drop "
                           "them from the beginning of its context",
                           where(), std::ssize(sequence.tokens) - 1 + sequence.num_truncated, sequence.num_truncated,
                           input_.encoder->max_length());
      }
    }
  }

  static int64_t count_tokens(const std::vector<std::vector<TokenRequest>>& requests) {
    int64_t tokens = 0;
    for (const auto& request : requests) {
      for (const TokenRequest& sequence : request) tokens += std::ssize(sequence.tokens);
    }
    return tokens;
  }

  void pack(Window& window) const {
    std::vector<ScoredSequence> sequences;
    for (const auto& document : window.sequences) {
      for (const auto& request : document) {
        for (const TokenRequest& sequence : request) sequences.push_back({sequence.tokens, sequence.num_scored});
      }
    }
    window.packed = {pack_sequences(sequences, options_.batch_tokens), std::ssize(sequences)};
  }

  const EvaluationInput& input_;
  const EvaluationOptions& options_;
  tasks::DocumentStream& stream_;
};

std::vector<Answers> answers_of(const Window& window, const std::vector<SequenceScore>& scores) {
  std::vector<Answers> result;
  size_t next = 0;
  for (const auto& document : window.sequences) {
    Answers answers;
    for (const auto& request : document) {
      tasks::Answer answer{0, true, 0};
      for (const TokenRequest& sequence : request) {
        answer.log_likelihood += scores[next].log_likelihood;
        answer.is_greedy = answer.is_greedy && scores[next].is_greedy;
        answer.num_tokens += sequence.num_scored;
        ++next;
      }
      ATHANOR_CHECK_CHECKPOINT(!std::isnan(answer.log_likelihood),
                               "a log-likelihood is not a number: the model has weights that are not finite");
      answers.push_back(answer);
    }
    result.push_back(std::move(answers));
  }
  return result;
}

void count(const Window& window, EvaluationCounts& counts) {
  for (size_t d = 0; d < window.documents.size(); ++d) {
    counts.documents += 1;
    for (const auto& request : window.sequences[d]) {
      counts.requests += 1;
      for (const TokenRequest& sequence : request) {
        counts.tokens += std::ssize(sequence.tokens) - 1;
        if (sequence.num_truncated > 0 && counts.truncated++ == 0) counts.truncated_task = window.documents[d].task;
      }
    }
  }
  for (const TokenForest& batch : window.packed.batches) counts.computed_tokens += std::ssize(batch.tokens);
}

// Passes on what an earlier process has answered.
void replay(const EvaluationInput& input, tasks::DocumentStream& stream, ProgressBar& progress,
            EvaluationCounts& counts) {
  if (!input.journal) return;
  for (const Answers& answers : input.journal->take_earlier()) {
    tasks::TaskDocument document;
    ATHANOR_CHECK_DATA(stream.next(document) && document.requests.size() == answers.size(),
                       "{}: the answers that an earlier process has left do not fit the tasks; remove the file",
                       input.journal->file().string());
    input.answered(document, answers);
    counts.documents += 1;
    counts.requests += std::ssize(document.requests);
    counts.taken_up += 1;
    progress.skip(1);
  }
  if (counts.taken_up > 0)
    log::info("{} documents that an earlier call has answered are taken up from {}", counts.taken_up,
              input.journal->file().string());
}

// Without room on the disk the evaluation continues, and is not taken up if it is interrupted.
void keep(const std::vector<Answers>& window, AnswersJournal* journal, bool& may_keep) {
  if (journal && may_keep) {
    try {
      journal->append(window);
    } catch (const IoError& error) {
      may_keep = false;
      log::warn("{}; the evaluation continues, but would begin again if it were interrupted", error.what());
    }
  }
  fault_point("eval.after_window");
}

// Scores the batches in rounds, between which an evaluation may end. Returns nothing if it has to.
std::optional<std::vector<SequenceScore>> score_in_rounds(ModelState& model, const ForestBatches& packed,
                                                          const EvaluationInput& input, int64_t multiple_of) {
  if (!input.must_end) return score_forests(model, &packed, multiple_of);
  constexpr size_t kBatchesOfRank = 4;
  const Layout& layout = model.mesh.layout();
  const size_t round = kBatchesOfRank * static_cast<size_t>(layout.data()) * static_cast<size_t>(layout.pipeline());
  std::vector<SequenceScore> scores(static_cast<size_t>(packed.num_sequences));
  for (size_t begin = 0; begin < packed.batches.size(); begin += round) {
    if (input.must_end()) return std::nullopt;
    const auto first = packed.batches.begin() + static_cast<int64_t>(begin);
    const auto end = first + static_cast<int64_t>(std::min(round, packed.batches.size() - begin));
    const ForestBatches some{{first, end}, packed.num_sequences};
    const auto of_round = *score_forests(model, &some, multiple_of);
    for (const TokenForest& batch : some.batches) {
      for (const auto& member : batch.members) {
        const auto index = static_cast<size_t>(member.sequence);
        scores[index] = of_round[index];
      }
    }
  }
  return scores;
}

// Scores a window and passes on its answers. Returns false if the evaluation has to end.
bool finish_window(ModelState& model, const EvaluationInput& input, const EvaluationOptions& options,
                   const Window& window, bool& may_keep, EvaluationCounts& counts) {
  const auto scores = score_in_rounds(model, window.packed, input, options.multiple_of);
  if (!scores) return false;
  const auto answers = answers_of(window, *scores);
  keep(answers, input.journal, may_keep);
  for (size_t d = 0; d < answers.size(); ++d) input.answered(window.documents[d], answers[d]);
  count(window, counts);
  return true;
}

// The next window comes from another thread, whose error ends the evaluation between two windows.
EvaluationCounts lead(ModelState& model, const EvaluationInput& input, const EvaluationOptions& options) {
  EvaluationCounts counts;
  ProgressBar progress("evaluating", static_cast<uint64_t>(input.tasks->num_documents()), "documents",
                       input.shows_progress ? kLongWork_s : INFINITY);
  const auto stream = input.tasks->documents();
  Preparation preparation(input, options, *stream);
  bool may_keep = true;
  std::exception_ptr failure;
  const auto take = [&](const std::function<Window()>& make) {
    try {
      return make();
    } catch (...) {
      failure = std::current_exception();
      return Window{};
    }
  };
  Window window = take([&] {
    replay(input, *stream, progress, counts);
    return preparation.next();
  });
  while (!window.documents.empty()) {
    auto following = std::async(std::launch::async, [&] { return preparation.next(); });
    counts.was_interrupted = !finish_window(model, input, options, window, may_keep, counts);
    if (counts.was_interrupted) {
      take([&] { return following.get(); });  // its error does not matter any more
      failure = nullptr;
      break;
    }
    progress.add(window.documents.size());
    window = take([&] { return following.get(); });
  }
  score_forests(model, nullptr, options.multiple_of);  // tells the other ranks that there are no more
  if (failure) std::rethrow_exception(failure);
  progress.finish();
  return counts;
}

}  // namespace

EvaluationCounts evaluate(ModelState& model, const EvaluationInput& input, const EvaluationOptions& options) {
  if (model.mesh.is_first()) return lead(model, input, options);
  while (score_forests(model, nullptr, options.multiple_of)) {
  }
  return {};
}

void check_requests(const EvaluationInput& input, const EvaluationOptions& options) {
  const auto stream = input.tasks->documents();
  Preparation preparation(input, options, *stream);
  while (!preparation.next().documents.empty()) {
  }
}

}  // namespace athanor::inline eval
