#include "tasks/task_scores.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "tasks/python_repr.h"
#include "tasks/sha256.h"
#include "tasks/task_config.h"

namespace athanor::tasks {
namespace {

using Json = nlohmann::ordered_json;

double python_square(double x) {
  volatile double two = 2;  // Python's x ** 2 is pow()
  return std::pow(x, two);
}

// Members by name, as dict(sorted(...)) gives them.
Json sorted(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  std::sort(names.begin(), names.end());
  Json result = Json::object();
  for (const auto& name : names) result[name] = object.at(name);
  return result;
}

// What a group's metric is made of: those of its tasks that have it.
struct Combined {
  std::vector<double> values, errors;
  std::vector<int64_t> sizes;

  double mean(bool by_size) const {
    double sum = 0, weights = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double weight = by_size ? static_cast<double>(sizes[i]) : 1.0;
      sum += values[i] * weight;
      weights += weight;
    }
    return sum / weights;
  }
  // lm_eval's pooled_sample_stderr, and unweighted_mean_stderr.
  double error(bool by_size) const {
    double sum = 0;
    int64_t total = 0;
    for (size_t i = 0; i < errors.size(); ++i) {
      const auto n = static_cast<double>(sizes[i]);
      sum += by_size ? (n - 1) * python_square(errors[i]) * n : python_square(errors[i]);
      total += sizes[i];
    }
    const auto count = static_cast<int64_t>(sizes.size());
    if (!by_size) return std::sqrt(sum) / static_cast<double>(errors.size());
    return std::sqrt(sum / static_cast<double>(total - count) / static_cast<double>(total));
  }
};

}  // namespace

struct TaskScores::State {
  explicit State(const TaskSet& set) : tasks(set) {
    for (int64_t task = 0; task < set.num_tasks(); ++task) {
      sums.emplace_back();
      for (const auto& metric : set.config(task).metrics) sums.back().push_back(make_metric_sum(metric));
    }
    counts.resize(sums.size());
  }

  Json result_of(int64_t task) const;
  Json result_of(const TaskGroup& group, const Json& results) const;
  Json shots() const;
  Json directions() const;

  const TaskSet& tasks;
  std::vector<std::vector<std::unique_ptr<MetricSum>>> sums;  // one for each task and metric
  std::vector<int64_t> counts;                                // documents of each task
};

TaskScores::TaskScores(const TaskSet& tasks) : state_(std::make_unique<State>(tasks)) {}
TaskScores::~TaskScores() = default;

void TaskScores::add(const TaskDocument& document, std::span<const Answer> answers) {
  const auto& config = state_->tasks.config(document.task);
  const auto task = static_cast<size_t>(document.task);
  for (size_t i = 0; i < config.metrics.size(); ++i)
    state_->sums[task][i]->add(metric_of_document(config.output_type, config.metrics[i].name, document, answers));
  ++state_->counts[task];
}

Json TaskScores::sample(const TaskDocument& document, std::span<const Answer> answers) const {
  const auto& config = state_->tasks.config(document.task);
  const bool is_rolling = config.output_type == OutputType::kRolling;
  Json line{{"doc_id", document.doc_id}, {"doc", document.row}, {"target", document.target}};
  line["arguments"] = Json::array();
  line["resps"] = Json::array();
  line["filtered_resps"] = Json::array();
  for (size_t i = 0; i < document.requests.size(); ++i) {
    const auto& request = document.requests[i];
    const Json response =
        is_rolling ? Json(answers[i].log_likelihood) : Json::array({answers[i].log_likelihood, answers[i].is_greedy});
    line["arguments"].push_back(is_rolling ? Json::array({request.continuation})
                                           : Json::array({request.context, request.continuation}));
    line["resps"].push_back(Json::array({response}));
    line["filtered_resps"].push_back(response);
  }
  line["filter"] = "none";
  line["metrics"] = Json::array();
  for (const auto& metric : config.metrics) line["metrics"].push_back(metric.name);
  const auto& first = document.requests.at(0);
  line["doc_hash"] = sha256_hex(python_json(document.row, {2, false, false}));
  line["prompt_hash"] = sha256_hex(is_rolling ? first.continuation : first.context);
  line["target_hash"] = sha256_hex(python_str(Value::of_json(document.target)));
  for (const auto& metric : config.metrics)
    line[metric.name] = metric_of_document(config.output_type, metric.name, document, answers);
  return line;
}

Json TaskScores::State::result_of(int64_t task) const {
  const auto& config = tasks.config(task);
  const auto index = static_cast<size_t>(task);
  Json result{{"name", config.name}, {"alias", config.alias}, {"sample_len", counts[index]}};
  for (size_t i = 0; i < config.metrics.size(); ++i) {
    const auto& name = config.metrics[i].name;
    const auto& sum = *sums[index][i];
    result[name + ",none"] = sum.value();
    const auto error = sum.standard_error();
    result[name + "_stderr,none"] = error ? Json(*error) : Json("N/A");
  }
  return result;
}

Json TaskScores::State::result_of(const TaskGroup& group, const Json& results) const {
  Json result{{"alias", group.alias}, {"name", group.name}};
  if (group.metrics.empty()) return result;
  int64_t total = 0;
  for (const int64_t leaf : group.leaves) total += counts[static_cast<size_t>(leaf)];
  result["sample_len"] = total;
  Json sample_count = Json::object();
  for (const auto& metric : group.metrics) {
    const std::string key = metric.name + ",none", error_key = metric.name + "_stderr,none";
    Combined combined;
    for (const int64_t leaf : group.leaves) {
      const auto found = results.find(tasks.name(leaf));
      if (found == results.end() || !found->contains(key)) continue;
      combined.values.push_back(found->at(key).get<double>());
      combined.sizes.push_back(found->at("sample_len").get<int64_t>());
      if (found->at(error_key).is_number()) combined.errors.push_back(found->at(error_key).get<double>());
    }
    if (combined.values.empty()) continue;
    result[key] = combined.mean(metric.weight_by_size);
    const bool has_error = combined.errors.size() == combined.values.size();
    result[error_key] = has_error ? Json(combined.error(metric.weight_by_size)) : Json("N/A");
    int64_t samples = 0;
    for (const int64_t size : combined.sizes) samples += size;
    sample_count[key] = samples;
  }
  if (!sample_count.empty()) result["sample_count"] = sample_count;
  return result;
}

// A group has the number of its members if they agree.
Json TaskScores::State::shots() const {
  Json shots = Json::object();
  for (int64_t task = 0; task < tasks.num_tasks(); ++task) shots[tasks.name(task)] = tasks.num_fewshot(task);
  for (const auto& group : tasks.groups()) {
    std::vector<int64_t> values;
    for (const auto& member : group.members)
      if (const auto found = shots.find(member); found != shots.end()) values.push_back(found->get<int64_t>());
    if (!values.empty() && std::count(values.begin(), values.end(), values[0]) == static_cast<ptrdiff_t>(values.size()))
      shots[group.name] = values[0];
  }
  return sorted(shots);
}

Json TaskScores::State::directions() const {
  Json all = Json::object();
  for (int64_t task = 0; task < tasks.num_tasks(); ++task) {
    Json of_task = Json::object();
    for (const auto& metric : tasks.config(task).metrics) of_task[metric.name] = metric.higher_is_better;
    all[tasks.name(task)] = of_task;
  }
  for (const auto& group : tasks.groups()) {
    Json of_group = Json::object();
    for (const auto& member : group.members) {
      const auto found = all.find(member);
      if (found == all.end()) continue;
      for (const auto& [metric, higher] : found->items()) {
        if (!of_group.contains(metric)) {
          of_group[metric] = higher;
        } else if (of_group[metric] != higher) {
          of_group[metric] = nullptr;
        }
      }
    }
    if (!of_group.empty()) all[group.name] = of_group;
  }
  return sorted(all);
}

Json TaskScores::results() const {
  const auto& tasks = state_->tasks;
  Json results = Json::object(), groups = Json::object(), subtasks = Json::object(), configs = Json::object(),
       versions = Json::object();
  Json samples = Json::object();
  for (int64_t task = 0; task < tasks.num_tasks(); ++task) {
    if (state_->counts[static_cast<size_t>(task)] == 0) continue;
    const auto& config = tasks.config(task);
    results[config.name] = state_->result_of(task);
    configs[config.name] = config.keys;
    versions[config.name] = config.version;
    samples[config.name] = {{"original", tasks.num_documents_there(task)},
                            {"effective", state_->counts[static_cast<size_t>(task)]}};
  }
  const auto& all_groups = tasks.groups();
  for (const auto& name : tasks.groups_from_below()) {
    const auto& group =
        *std::find_if(all_groups.begin(), all_groups.end(), [&](const TaskGroup& other) { return other.name == name; });
    results[name] = state_->result_of(group, results);
    versions[name] = group.version;
    if (!group.metrics.empty()) groups[name] = results[name];
  }
  for (const auto& group : all_groups) subtasks[group.name] = group.members;
  Json all{{"results", results}};
  if (!groups.empty()) all["groups"] = groups;
  all["group_subtasks"] = subtasks;
  all["configs"] = sorted(configs);
  all["versions"] = sorted(versions);
  all["n-shot"] = state_->shots();
  all["higher_is_better"] = state_->directions();
  all["n-samples"] = samples;
  return all;
}

}  // namespace athanor::tasks
