#include "tasks/task_list.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/own_folder.h"
#include "base/text.h"
#include "tasks/task_index.h"

namespace athanor::tasks {
namespace {

namespace fs = std::filesystem;

TaskSummary summary_of_task(const TaskEntry& entry) {
  const auto config = read_task_config(entry.keys, entry.source);
  TaskSummary task;
  task.name = config.name;
  task.alias = config.alias;
  task.output_type = output_type_name(config.output_type);
  task.chance = config.chance;
  task.num_fewshot = config.num_fewshot.value_or(0);
  task.data = config.data;
  for (const auto& metric : config.metrics) task.metrics.push_back(metric.name);
  task.published = config.published;
  task.file = config.file.string();
  return task;
}

TaskSummary summary_of_group(const TaskEntry& entry) {
  const auto group = read_group_config(entry.keys, entry.source);
  TaskSummary summary;
  summary.name = group.name;
  summary.alias = group.alias;
  summary.is_group = true;
  summary.chance = group.chance;
  summary.published = group.published;
  summary.file = entry.source.file.string();
  for (const auto& metric : group.metrics) summary.metrics.push_back(metric.name);
  if (const auto members = entry.keys.find("task"); members != entry.keys.end() && members->is_array())
    for (const auto& member : *members)
      if (member.is_string()) summary.members.push_back(member.get<std::string>());
  return summary;
}

}  // namespace

std::map<std::string, double> shipped_chances() {
  std::map<std::string, double> chances;
  for (const TaskSummary& task : list_tasks({}))
    if (task.chance) chances[task.name] = *task.chance;
  return chances;
}

fs::path shipped_tasks_folder() {
  const fs::path own = own_folder();
  const fs::path installed = own / "../share/athanor/tasks";
  return fs::exists(installed) ? installed : own / "../tasks";
}

std::vector<TaskSummary> list_tasks(const std::vector<fs::path>& include_paths) {
  std::vector<fs::path> folders{shipped_tasks_folder()};
  folders.insert(folders.end(), include_paths.begin(), include_paths.end());
  const TaskIndex index(folders);
  for (const auto& message : index.unreadable()) log::warn("a task file cannot be used: {}", message);
  std::vector<TaskSummary> all;
  for (const auto& [name, entry] : index.entries()) {
    try {
      all.push_back(entry.is_group ? summary_of_group(entry) : summary_of_task(entry));
    } catch (const Error& error) {
      log::warn("the task {} cannot be used: {}", name, error.what());
    }
  }
  return all;
}

std::string format_task_list(const std::vector<TaskSummary>& tasks) {
  size_t name_width = 4, data_width = 4;
  for (const auto& task : tasks) {
    name_width = std::max(name_width, task.name.size());
    data_width = std::max(data_width, task.data.size());
  }
  std::string out = fmt::format("{:<{}}  {:>6}  {:>5}  {:<{}}  {}\n", "task", name_width, "chance", "shots", "data",
                                data_width, "metrics");
  for (const auto& task : tasks) {
    out += fmt::format("{:<{}}  {:>6}  {:>5}  {:<{}}  {}\n", task.name, name_width,
                       task.chance ? fmt::format("{:.4g}", *task.chance) : "-",
                       task.is_group ? "" : std::to_string(task.num_fewshot), task.data, data_width,
                       task.is_group ? "group of " + join_first(task.members, 6) : join(task.metrics));
    for (const auto& score : task.published)
      out += fmt::format("{:<{}}    {} {} = {}{} ({})\n", "", name_width, score.model, score.metric, score.value,
                         score.shots ? fmt::format(", {} shots", *score.shots) : "", score.source);
  }
  return out;
}

}  // namespace athanor::tasks
