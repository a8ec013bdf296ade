#pragma once
// The configuration section for evaluation during training (docs/evaluation-gate.md).

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "config/fields.h"
#include "config/ranges.h"

namespace athanor::inline config {

struct EvalConfig {
  int64_t interval = 0;
  bool on_start = false;
  std::vector<std::string> tasks;
  std::string data;
  std::vector<std::string> include_paths;
  double limit = 0;
  int64_t num_fewshot = -1;
  int64_t batch_tokens = 8192;
  int64_t window_tokens = int64_t{1} << 21;
  std::vector<std::string> stop_if;
  std::vector<std::string> warn_if;

  void describe(Fields& f) {
    f.field("interval", interval, "steps between evaluations, which also follow the last step; 0 turns them off",
            between(0, kMaxSteps));
    f.field("on_start", on_start, "evaluate before the first step, too: the scores that training starts from");
    f.field("tasks", tasks,
            "what is evaluated: tasks, groups, tags, patterns of names, or .yaml files (docs/tasks.md)");
    f.field("data", data, "the folder with the rows of the tasks; only the first rank reads it");
    f.field("include_paths", include_paths, "folders of your own task files");
    f.field("limit", limit, "documents of each task that are used; below 1: this share of them; 0: all",
            {"a whole number, or a share below 1",
             [](const double& x) { return x >= 0 && x <= 1e15 && (x < 1 || x == std::floor(x)); }});
    f.field("num_fewshot", num_fewshot, "examples before each question; -1: each task's own number",
            between(int64_t{-1}, 1000));
    f.field("batch_tokens", batch_tokens, "tokens that a data rank computes at once", between(1, kMaxMicrobatchTokens));
    f.field("window_tokens", window_tokens, "tokens of the requests that the first rank holds at once",
            between(1, int64_t{1} << 32));
    f.field("stop_if", stop_if,
            "rules that stop the run with code 77 after an evaluation, such as \"arc_easy < chance + 2 stderr after "
            "5e9 tokens\"");
    f.field("warn_if", warn_if, "rules that warn");
  }
};

}  // namespace athanor::inline config
