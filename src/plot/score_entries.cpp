#include "plot/score_entries.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace athanor::inline plot {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> finite_in(const Json& object, const std::string& name) {
  const Json* value = member_of(object, name);
  if (!value || !value->is_number() || !std::isfinite(value->get<double>())) return std::nullopt;
  return value->get<double>();
}

// The metric of a key such as "acc,none"; "" for errors, and for what is no score.
std::string metric_of_key(const std::string& key, const Json& value) {
  const std::string metric = key.substr(0, key.find(','));
  const bool is_score = key.size() > metric.size() && value.is_number() && std::isfinite(value.get<double>());
  return is_score && !metric.ends_with("_stderr") ? metric : "";
}

// The key of the metric; of the headline metric if none is asked for.
std::optional<std::string> key_of_metric(const Json& scores, const std::string& metric) {
  std::optional<std::string> found;
  // A difference of 0.01 bits shows on any axis; perplexities of words differ by powers of ten.
  const auto rank_of = [](const std::string& name) {
    const std::array<std::string_view, 3> preferred{"bits_per_byte", "acc", "acc_norm"};
    return std::ranges::find(preferred, name) == preferred.end()
               ? 1
               : 2 + static_cast<int>(std::ranges::find(preferred, name) - preferred.begin());
  };
  int rank = 0;
  for (const auto& [key, value] : scores.items()) {
    const std::string name = metric_of_key(key, value);
    if (name.empty() || (!metric.empty() && name != metric)) continue;
    const int new_rank = rank_of(name);
    if (new_rank > rank) found = key;
    rank = std::max(rank, new_rank);
  }
  return found;
}

// The scores of a task or group: those of groups come twice.
const Json* scores_of(const Json& results, const std::string& task) {
  for (const char* part : {"results", "groups"}) {
    const Json* all = member_of(results, part);
    const Json* scores = all ? member_of(*all, task) : nullptr;
    if (scores && scores->is_object()) return scores;
  }
  return nullptr;
}

void add_members_below(const Json& subtasks, const std::string& group, std::set<std::string>& below) {
  const Json* members = member_of(subtasks, group);
  if (!members || !members->is_array()) return;
  for (const Json& member : *members) {
    if (member.is_string() && below.insert(member.get<std::string>()).second)
      add_members_below(subtasks, member.get<std::string>(), below);
  }
}

// The tasks and groups below groups that have a score.
std::set<std::string> combined_tasks(const Json& results, const std::string& metric) {
  std::set<std::string> combined;
  const Json* subtasks = member_of(results, "group_subtasks");
  if (!subtasks || !subtasks->is_object()) return combined;
  for (const auto& [group, members] : subtasks->items()) {
    const Json* scores = scores_of(results, group);
    if (scores && key_of_metric(*scores, metric)) add_members_below(*subtasks, group, combined);
  }
  return combined;
}

std::vector<std::string> tasks_of(const Json& results) {
  std::vector<std::string> tasks;
  for (const char* part : {"results", "groups"}) {
    const Json* all = member_of(results, part);
    if (!all || !all->is_object()) continue;
    for (const auto& [task, scores] : all->items()) {
      if (scores.is_object() && std::ranges::find(tasks, task) == tasks.end()) tasks.push_back(task);
    }
  }
  return tasks;
}

// lm_eval writes no number of examples for a group; that of its tasks counts, if they agree.
int64_t shots_of(const Json& results, const std::string& task) {
  const Json* shots = member_of(results, "n-shot");
  if (!shots) return -1;
  if (const int64_t own = count_in(*shots, task); own >= 0) return own;
  std::set<std::string> below;
  if (const Json* subtasks = member_of(results, "group_subtasks")) add_members_below(*subtasks, task, below);
  std::set<int64_t> found;
  for (const std::string& each : below) found.insert(count_in(*shots, each));
  found.erase(-1);
  return found.size() == 1 ? *found.begin() : -1;
}

int64_t documents_of(const Json& results, const std::string& task, const Json& scores) {
  if (const int64_t own = count_in(scores, "sample_len"); own >= 0) return own;
  const Json* samples = member_of(results, "n-samples");
  const Json* of_task = samples ? member_of(*samples, task) : nullptr;
  return of_task ? count_in(*of_task, "effective") : -1;
}

std::optional<double> chance_of(const Json& results, const ScoreEntry& entry) {
  const Json* own = member_of(results, "athanor");
  const Json* chance = own ? member_of(*own, "chance") : nullptr;
  if (!chance || !entry.metric.starts_with("acc")) return std::nullopt;
  return finite_in(*chance, entry.task);
}

}  // namespace

std::string ScoreEntry::kind() const {
  return fmt::format("{}, {}, version {}", num_fewshot < 0 ? "examples unknown" : fmt::format("{}-shot", num_fewshot),
                     num_documents < 0 ? "documents unknown" : fmt::format("{} documents", num_documents), version);
}

const Json* member_of(const Json& object, const std::string& name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

int64_t count_in(const Json& object, const std::string& name) {
  const Json* value = member_of(object, name);
  return value && value->is_number_integer() ? std::max<int64_t>(-1, value->get<int64_t>()) : -1;
}

std::vector<ScoreEntry> score_entries(const Json& results, const std::string& metric,
                                      const std::vector<std::string>& asked) {
  std::vector<ScoreEntry> entries;
  const std::set<std::string> combined = asked.empty() ? combined_tasks(results, metric) : std::set<std::string>();
  for (const std::string& task : asked.empty() ? tasks_of(results) : asked) {
    const Json* scores = scores_of(results, task);
    const auto key = scores && !combined.contains(task) ? key_of_metric(*scores, metric) : std::nullopt;
    if (!key) continue;
    ScoreEntry entry;
    entry.task = task;
    entry.metric = key->substr(0, key->find(','));
    entry.score = {scores->at(*key).get<double>(),
                   finite_in(*scores, entry.metric + "_stderr" + key->substr(key->find(',')))};
    entry.num_fewshot = shots_of(results, task);
    entry.num_documents = documents_of(results, task, *scores);
    const Json* versions = member_of(results, "versions");
    const Json* version = versions ? member_of(*versions, task) : nullptr;
    entry.version = version ? version->dump(-1, ' ', false, Json::error_handler_t::replace) : "unknown";
    entry.chance = chance_of(results, entry);
    entries.push_back(std::move(entry));
  }
  return entries;
}

void add_metrics(const Json& results, std::set<std::string>& metrics) {
  for (const std::string& task : tasks_of(results)) {
    for (const auto& [key, value] : scores_of(results, task)->items()) metrics.insert(metric_of_key(key, value));
  }
  metrics.erase("");
}

}  // namespace athanor::inline plot
