#pragma once
// A document of a task as text requests, with what the scoring of their answers needs.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace athanor::tasks {

/// What a model is asked: the log-likelihood of `continuation` after `context`. Both are UTF-8.
struct TextRequest {
  std::string context, continuation;
  bool rolling = false;  ///< `continuation` is a whole text, of which every token is scored; `context` is empty
};

/// The model's answer to one request.
struct Answer {
  double log_likelihood = 0;  ///< natural logarithm, summed over the tokens of the continuation
  bool is_greedy = false;     ///< each token of the continuation is the most likely one
  int64_t num_tokens = 0;     ///< tokens of the continuation; only token_perplexity uses it
};

/// A row of a data set as requests. The requests of a document are answered in their order.
///
/// multiple_choice has a request for each choice, and with acc_mutual_info a second one for each choice, with an empty
/// context. loglikelihood and loglikelihood_rolling have one request.
struct TaskDocument {
  int64_t task = 0;    ///< index in the TaskSet
  int64_t doc_id = 0;  ///< position among the documents of its task, from 0
  std::vector<TextRequest> requests;

  std::vector<int64_t> gold;                             ///< right choices; one, or several if any of them counts
  std::vector<int64_t> choice_characters, choice_bytes;  ///< length of each choice in code points and in bytes
  int64_t num_words = 0, num_bytes = 0;                  ///< size of a rolling text
  nlohmann::ordered_json row;     ///< the row with what process_docs added, for the lines of samples
  nlohmann::ordered_json target;  ///< what doc_to_target gave: a number, a string or a list
};

}  // namespace athanor::tasks
