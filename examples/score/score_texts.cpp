// Scores texts: how probable does a model find each line of a file?
//
//   score_texts MODEL FILE
//
// MODEL is a run folder, a checkpoint, or a folder of `transformers`. For each line, the output has the log-probability
// (natural logarithm), the number of tokens, how many of them greedy decoding would have chosen, and the bits per byte.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/error.h"
#include "eval/score.h"

namespace {

int score(const std::string& model, const std::string& path) {
  athanor::TextScorer scorer(model);
  std::ifstream file(path);
  ATHANOR_CHECK(file.good() && file.peek() != EOF, "cannot read {}, or it is empty", path);
  for (std::string line; std::getline(file, line);) {
    const athanor::TextScore text = scorer.score(line);
    const auto greedy = std::ranges::count_if(text.tokens, [](const auto& token) { return token.is_greedy; });
    std::printf("%.9g\t%zu\t%td\t%.9g\n", text.log_probability(), text.tokens.size(), greedy, text.bits_per_byte());
  }
  ATHANOR_CHECK(std::fflush(stdout) == 0, "the scores cannot be written");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: score_texts MODEL FILE\n");
    return 2;
  }
  try {
    return score(argv[1], argv[2]);
  } catch (const athanor::Error& error) {
    std::fprintf(stderr, "score_texts: %s\n", error.what());
    return 1;
  }
}
