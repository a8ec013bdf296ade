#include "plot/score_history.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "plot/score_entries.h"

namespace athanor::inline plot {
namespace {

using Json = nlohmann::ordered_json;

// A score with the place where it belongs.
struct PlacedEntry {
  ScoreEntry entry;
  size_t run = 0;
  int64_t step = 0;
  double date = 0;
};

double date_of(const Json& results) {
  const Json* date = member_of(results, "date");
  return date && date->is_number() ? date->get<double>() : 0;
}

[[noreturn]] void refuse_history(const std::vector<RunResults>& runs, const HistoryRequest& request) {
  std::set<std::string> tasks, metrics;
  for (const auto& run : runs) {
    for (const Json& results : run.results) {
      add_metrics(results, metrics);
      for (const auto& entry : score_entries(results, "", {})) tasks.insert(entry.task);
    }
  }
  const std::vector<std::string> all_tasks(tasks.begin(), tasks.end()), all(metrics.begin(), metrics.end());
  ATHANOR_CHECK(!all.empty(), "the results of {} have no score", runs.empty() ? "no run" : runs[0].name);
  ATHANOR_CHECK(request.metric.empty() || metrics.contains(request.metric),
                "no result has the metric {}{}; there are {}", request.metric, did_you_mean(request.metric, all),
                join(all));
  fail<ConfigError>("no result has {}{}{}; there are {}", join(request.tasks),
                    request.tasks.empty() ? "" : did_you_mean(request.tasks[0], all_tasks),
                    request.metric.empty() ? "" : " with the metric " + request.metric, join_first(all_tasks, 20));
}

// Builds the history from the entries of all results.
class HistoryBuilder {
 public:
  HistoryBuilder(const std::vector<RunResults>& runs, const HistoryRequest& request) : runs_(runs), request_(request) {
    for (const auto& run : runs) history_.runs.push_back({run.name, {}});
    collect();
  }

  ScoreHistory build() {
    if (tasks_.empty()) refuse_history(runs_, request_);
    for (const auto& task : tasks_) add_column(of_task_.at(task));
    for (auto& run : history_.runs)
      std::erase_if(run.checkpoints, [](const CheckpointScores& checkpoint) {
        return std::ranges::none_of(checkpoint.scores, [](const auto& score) { return score.has_value(); });
      });
    add_average();
    return std::move(history_);
  }

 private:
  void collect() {
    for (const auto& task : request_.tasks)
      if (std::ranges::find(tasks_, task) == tasks_.end()) tasks_.push_back(task);
    const std::vector<std::string> asked = tasks_;
    for (size_t run = 0; run < runs_.size(); ++run) {
      std::map<int64_t, int64_t> tokens_of_step;
      for (const Json& results : runs_[run].results) {
        const int64_t step = step_of_results(results);
        if (step < 0) continue;
        auto& tokens = tokens_of_step.try_emplace(step, -1).first->second;
        tokens = std::max(tokens, count_in(results.at("athanor"), "tokens"));
        for (auto& entry : score_entries(results, request_.metric, asked)) {
          if (std::ranges::find(tasks_, entry.task) == tasks_.end()) tasks_.push_back(entry.task);
          of_task_[entry.task].push_back({std::move(entry), run, step, date_of(results)});
        }
      }
      for (const auto& [step, tokens] : tokens_of_step) history_.runs[run].checkpoints.push_back({step, tokens, {}});
    }
    std::erase_if(tasks_, [&](const std::string& task) { return !of_task_.contains(task); });
  }

  // The kind of which most runs, then most checkpoints have results; of equal ones that of the most documents, then the
  // latest.
  static std::string chosen_kind(const std::vector<PlacedEntry>& entries) {
    struct Count {
      std::set<size_t> runs;
      std::set<std::pair<size_t, int64_t>> checkpoints;
      int64_t documents = -1;
      double date = 0;
      auto rank() const { return std::tuple(runs.size(), checkpoints.size(), documents, date); }
    };
    std::map<std::string, Count> counts;
    for (const auto& placed : entries) {
      auto& count = counts[placed.entry.metric + ", " + placed.entry.kind()];
      count.runs.insert(placed.run);
      count.checkpoints.emplace(placed.run, placed.step);
      count.documents = placed.entry.num_documents;
      count.date = std::max(count.date, placed.date);
    }
    const auto best = std::ranges::max_element(
        counts, [](const auto& a, const auto& b) { return a.second.rank() < b.second.rank(); });
    return best->first;
  }

  void add_column(std::vector<PlacedEntry>& entries) {
    std::ranges::stable_sort(entries, {}, &PlacedEntry::date);
    const std::string kind = chosen_kind(entries);
    const size_t column = history_.columns.size();
    history_.columns.push_back({});
    size_t left_out = 0;
    std::string other;
    for (auto& run : history_.runs)
      for (auto& checkpoint : run.checkpoints) checkpoint.scores.emplace_back();
    for (const auto& [entry, run, step, date] : entries) {
      if (const std::string own = entry.metric + ", " + entry.kind(); own != kind) {
        ++left_out;
        other = own;
        continue;
      }
      auto& checkpoints = history_.runs[run].checkpoints;
      std::ranges::lower_bound(checkpoints, step, {}, &CheckpointScores::step)->scores[column] = entry.score;
      history_.columns[column] = {entry.task, entry.metric, entry.num_fewshot, chance(entry)};
    }
    if (left_out > 0)
      log::warn("{}: {} of {} results are of another kind ({}) than those that are shown ({}), and are left out",
                entries[0].entry.task, left_out, entries.size(), other, kind);
  }

  std::optional<double> chance(const ScoreEntry& entry) const {
    if (entry.chance || !entry.metric.starts_with("acc")) return entry.chance;
    const auto known = request_.chance.find(entry.task);
    return known == request_.chance.end() ? std::nullopt : std::optional(known->second);
  }

  // The mean of all accuracies. Errors of tasks are independent: that of the mean is √(Σ error²) / n.
  void add_average() {
    std::vector<size_t> parts;
    bool chance_known = true;
    double chance = 0;
    for (size_t i = 0; i < history_.columns.size(); ++i) {
      const auto& column = history_.columns[i];
      if (!column.metric.starts_with("acc")) continue;
      parts.push_back(i);
      chance_known = chance_known && column.chance;
      chance += column.chance.value_or(0);
    }
    if (parts.size() < 2) return;
    const auto n = static_cast<double>(parts.size());
    bool is_somewhere = false;
    for (auto& run : history_.runs) {
      for (auto& checkpoint : run.checkpoints) {
        checkpoint.scores.push_back(mean_of(checkpoint, parts));
        is_somewhere = is_somewhere || checkpoint.scores.back();
      }
    }
    if (is_somewhere) {
      history_.columns.push_back({"average", "accuracy", -1, chance_known ? std::optional(chance / n) : std::nullopt});
      return;
    }
    for (auto& run : history_.runs)
      for (auto& checkpoint : run.checkpoints) checkpoint.scores.pop_back();
  }

  static std::optional<Score> mean_of(const CheckpointScores& checkpoint, const std::vector<size_t>& parts) {
    double sum = 0, squares = 0;
    bool errors_known = true;
    for (const size_t part : parts) {
      const auto& score = checkpoint.scores[part];
      if (!score) return std::nullopt;
      sum += score->value;
      errors_known = errors_known && score->error;
      squares += score->error.value_or(0) * score->error.value_or(0);
    }
    const auto n = static_cast<double>(parts.size());
    return Score{sum / n, errors_known ? std::optional(std::sqrt(squares) / n) : std::nullopt};
  }

  const std::vector<RunResults>& runs_;
  const HistoryRequest& request_;
  ScoreHistory history_;
  std::vector<std::string> tasks_;
  std::map<std::string, std::vector<PlacedEntry>> of_task_;
};

}  // namespace

bool ScoreHistory::has_tokens() const {
  for (const auto& run : runs)
    for (const auto& checkpoint : run.checkpoints)
      if (checkpoint.tokens < 0) return false;
  return true;
}

ScoreHistory make_score_history(const std::vector<RunResults>& runs, const HistoryRequest& request) {
  return HistoryBuilder(runs, request).build();
}

int64_t step_of_results(const Json& results) {
  const Json* own = member_of(results, "athanor");
  return own ? count_in(*own, "step") : -1;
}

}  // namespace athanor::inline plot
