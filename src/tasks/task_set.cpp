#include "tasks/task_set.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "tasks/few_shot.h"
#include "tasks/task_index.h"
#include "tasks/task_requests.h"
#include "tasks/task_rows.h"

namespace athanor::tasks {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// A task with its rows.
struct LoadedTask {
  TaskConfig config;
  RowSelection rows;
  int64_t num_documents = 0, num_fewshot = 0;
  ExampleSource examples;
};

std::vector<fs::path> task_folders(const TaskSelection& selection) {
  std::vector<fs::path> folders{shipped_tasks_folder()};
  folders.insert(folders.end(), selection.include_paths.begin(), selection.include_paths.end());
  return folders;
}

// lm_eval's get_sample_size.
int64_t limited(int64_t total, double limit) {
  if (limit <= 0) return total;
  const double wanted = limit < 1 ? std::ceil(static_cast<double>(total) * limit) : std::floor(limit);
  return wanted < static_cast<double>(total) ? static_cast<int64_t>(wanted) : total;
}

// lm_eval: a number on the command line replaces that of the file, except a 0.
int64_t number_of_examples(const TaskConfig& config, const TaskSelection& selection) {
  if (config.num_fewshot == 0) return 0;
  return selection.num_fewshot.value_or(config.num_fewshot.value_or(0));
}

// Counts the rows of every task; tasks with the same files are counted in one pass.
void count_rows(std::vector<LoadedTask>& tasks, const TaskSelection& selection,
                const std::function<void(int64_t)>& worked) {
  std::map<std::vector<fs::path>, std::vector<LoadedTask*>> by_files;
  for (auto& task : tasks) by_files[find_evaluation_rows(task.config, selection.data)].push_back(&task);
  for (const auto& [files, members] : by_files) {
    std::vector<const Template*> conditions;
    for (const auto* task : members) conditions.push_back(task->config.selects ? &*task->config.selects : nullptr);
    auto selections = select_rows(files, conditions);
    for (size_t i = 0; i < members.size(); ++i) members[i]->rows = std::move(selections[i]);
    if (worked) worked(1);
  }
  for (auto& task : tasks) {
    const int64_t total = task.rows.count();
    ATHANOR_CHECK_DATA(total > 0, "{}: no row of {} is a document{}", task.config.where, task.rows.files[0].string(),
                       task.config.selects ? "; athanor.where selects none" : "");
    task.num_documents = limited(total, selection.limit);
  }
}

// The files of a split, as rows that the task's condition selects.
RowSelection rows_of(const LoadedTask& task, const std::vector<fs::path>& files) {
  return select_rows(files, {task.config.selects ? &*task.config.selects : nullptr})[0];
}

// lm_eval's fewshot_docs: the split for examples, or the samples of the file, or the first there is of training,
// validation and test split. lm_eval passes the document over if examples come from the test split, or if neither
// is named. Without the rows of that split, the documents themselves are the examples.
ExampleSource find_examples(const LoadedTask& task, const fs::path& data, std::set<std::string>& told) {
  const auto& config = task.config;
  ExampleSource source;
  source.leaves_out_document = config.fewshot_split == config.test_split;
  if (!config.fewshot_split && config.samples) return source;
  const std::string split = config.fewshot_split      ? *config.fewshot_split
                            : config.training_split   ? *config.training_split
                            : config.validation_split ? *config.validation_split
                                                      : *config.test_split;
  auto files = find_split(config, data, split);
  if (!files.empty()) {
    source.rows = rows_of(task, files);
    ATHANOR_CHECK_DATA(source.rows.count() > 0, "{}: no row of {} can be an example", config.where, files[0].string());
    return source;
  }
  if (split != config.evaluation_split() && told.insert(config.data).second)
    log::info(
        "{}: no rows of the split {} in {}, so few-shot examples come from the documents, without the one that is "
        "asked",
        config.where, split, data.string());
  source.rows = task.rows;
  source.leaves_out_document = true;
  return source;
}

}  // namespace

struct TaskSet::State {
  std::vector<LoadedTask> tasks;
  std::vector<TaskGroup> groups;
  uint64_t seed = 0;
};

namespace {

class TaskStream : public DocumentStream {
 public:
  TaskStream(const std::vector<LoadedTask>& tasks, uint64_t seed) : tasks_(tasks), seed_(seed) {}

  bool next(TaskDocument& document) override {
    while (task_ < tasks_.size() && next_ == tasks_[task_].num_documents) open(task_ + 1);
    if (task_ == tasks_.size()) return false;
    const auto& task = tasks_[task_];
    if (next_ == 0) open(task_);
    RawRow raw;
    ATHANOR_ASSERT(reader_.next(raw));
    Json row = raw.parse();
    try {
      document = build(task, std::move(row));
    } catch (const DataError& error) {
      fail<DataError>("{}: {}", raw.place, error.what());
    }
    document.task = static_cast<int64_t>(task_);
    document.doc_id = next_++;
    return true;
  }

  // Continues with the first document of a task; what is open stays open.
  void open(size_t task) {
    task_ = task;
    next_ = 0;
    builder_.reset();
    examples_.reset();
    if (task_ < tasks_.size()) reader_.start(tasks_[task_].rows);
  }

 private:
  TaskDocument build(const LoadedTask& task, Json row) {
    add_fields(task.config.doc, row);
    if (!builder_) builder_.emplace(task.config, row);
    std::vector<Json> examples;
    if (task.num_fewshot > 0 && task.config.output_type != OutputType::kRolling) {
      if (!examples_) examples_.emplace(task.config, task.examples, seed_);
      examples = examples_->draw(task.num_fewshot, row);
    }
    return builder_->build(std::move(row), examples);
  }

  const std::vector<LoadedTask>& tasks_;
  uint64_t seed_;
  size_t task_ = 0;
  int64_t next_ = 0;
  SelectionReader reader_;
  std::optional<RequestBuilder> builder_;
  std::optional<ExamplePool> examples_;
};

}  // namespace

TaskSet::TaskSet(std::unique_ptr<State> state) : state_(std::move(state)) {}
TaskSet::TaskSet(TaskSet&&) noexcept = default;
TaskSet& TaskSet::operator=(TaskSet&&) noexcept = default;
TaskSet::~TaskSet() = default;

TaskSet TaskSet::load(const TaskSelection& selection, const std::function<void(int64_t)>& worked) {
  ATHANOR_CHECK(selection.limit >= 0 && (selection.limit < 1 || selection.limit == std::floor(selection.limit)),
                "--limit {}: give a number of documents, or a share of them below 1", selection.limit);
  ATHANOR_CHECK(!selection.num_fewshot || *selection.num_fewshot >= 0, "--fewshot {}: give a number from 0 on",
                *selection.num_fewshot);
  auto selected = TaskIndex(task_folders(selection)).select(selection.names);
  auto state = std::make_unique<State>();
  state->seed = selection.fewshot_seed;
  state->groups = std::move(selected.groups);
  for (auto& config : selected.tasks) {
    state->tasks.push_back({std::move(config), {}, 0, 0, {}});
    auto& task = state->tasks.back();
    task.num_fewshot = number_of_examples(task.config, selection);
    task.config.keys["num_fewshot"] = task.num_fewshot;
  }
  count_rows(state->tasks, selection, worked);
  TaskStream stream(state->tasks, state->seed);
  std::set<std::string> told;  // one line for the tasks that share their rows
  for (size_t i = 0; i < state->tasks.size(); ++i) {
    auto& task = state->tasks[i];
    if (task.num_fewshot > 0 && task.config.output_type != OutputType::kRolling)
      task.examples = find_examples(task, selection.data, told);
    stream.open(i);
    TaskDocument first;
    stream.next(first);
    if (worked) worked(1);
  }
  return TaskSet(std::move(state));
}

std::unique_ptr<DocumentStream> TaskSet::documents() const {
  return std::make_unique<TaskStream>(state_->tasks, state_->seed);
}

std::vector<fs::path> TaskSet::row_files() const {
  std::set<fs::path> files;
  for (const auto& task : state_->tasks) {
    files.insert(task.rows.files.begin(), task.rows.files.end());
    files.insert(task.examples.rows.files.begin(), task.examples.rows.files.end());
  }
  return {files.begin(), files.end()};
}

int64_t TaskSet::num_tasks() const { return static_cast<int64_t>(state_->tasks.size()); }

int64_t TaskSet::num_documents() const {
  int64_t sum = 0;
  for (const auto& task : state_->tasks) sum += task.num_documents;
  return sum;
}

int64_t TaskSet::num_documents(int64_t task) const { return state_->tasks.at(static_cast<size_t>(task)).num_documents; }
int64_t TaskSet::num_documents_there(int64_t task) const {
  return state_->tasks.at(static_cast<size_t>(task)).rows.count();
}
const TaskConfig& TaskSet::config(int64_t task) const { return state_->tasks.at(static_cast<size_t>(task)).config; }
const std::string& TaskSet::name(int64_t task) const { return config(task).name; }
const std::string& TaskSet::alias(int64_t task) const { return config(task).alias; }
const std::vector<TaskGroup>& TaskSet::groups() const { return state_->groups; }
std::vector<std::string> TaskSet::groups_from_below() const {
  std::vector<std::string> names;
  const std::function<void(const std::string&)> visit = [&](const std::string& name) {
    for (const auto& group : state_->groups) {
      if (group.name != name || std::find(names.begin(), names.end(), name) != names.end()) continue;
      for (const auto& member : group.members) visit(member);
      names.push_back(name);
    }
  };
  for (const auto& group : state_->groups) {
    const auto holds = [&](const TaskGroup& other) {
      return std::find(other.members.begin(), other.members.end(), group.name) != other.members.end();
    };
    if (std::none_of(state_->groups.begin(), state_->groups.end(), holds)) visit(group.name);
  }
  return names;
}

int64_t TaskSet::num_fewshot(int64_t task) const { return state_->tasks.at(static_cast<size_t>(task)).num_fewshot; }
int64_t TaskSet::stride(int64_t task) const { return config(task).stride; }
std::optional<double> TaskSet::chance(int64_t task) const { return config(task).chance; }

}  // namespace athanor::tasks
