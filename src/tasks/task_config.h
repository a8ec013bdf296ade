#pragma once
// A task file as it counts: lm_eval's keys with their defaults, and ours.

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tasks/metrics.h"
#include "tasks/task_list.h"
#include "tasks/template.h"

namespace athanor::tasks {

/// A key such as doc_to_text: the name of a field, a template, or a value. lm_eval decides between the first two by the
/// fields of the first row.
struct DocRule {
  nlohmann::ordered_json given;      ///< null: the key is not there
  std::optional<Template> compiled;  ///< if `given` is a text
};

/// How a document becomes text. Few-shot examples may have their own.
struct DocRules {
  DocRule text, target, choice, prefix;
  std::string target_delimiter = " ", fewshot_delimiter = "\n\n";
  /// process_docs: fields that are added to a row, or replaced, one after the other.
  std::vector<std::pair<std::string, Template>> added_fields;
};

struct TaskConfig {
  std::string name, alias;
  std::string where;  ///< "task arc_easy (tasks/arc_easy.yaml)", for messages
  std::filesystem::path file;
  nlohmann::ordered_json keys;     ///< what results show as the configuration
  nlohmann::ordered_json version;  ///< metadata.version, or "Yaml"
  OutputType output_type = OutputType::kMultipleChoice;
  std::optional<std::string> training_split, validation_split, test_split, fewshot_split;
  DocRule description;
  DocRules doc, example;
  bool takes_first_examples = false;                           ///< fewshot_config.sampler: first_n
  std::optional<std::vector<nlohmann::ordered_json>> samples;  ///< fewshot_config.samples
  std::optional<int64_t> num_fewshot;
  std::vector<MetricUse> metrics;

  // The keys of `athanor`.
  std::string data;                 ///< base name of the files of rows
  std::string dataset_name;         ///< a folder in which they may be, or ""
  std::optional<Template> selects;  ///< athanor.where
  std::optional<double> chance;
  std::vector<PublishedScore> published;
  int64_t stride = 0;

  bool has_metric(std::string_view metric) const;
  /// lm_eval evaluates the test split, if the task has one, or else the validation split.
  const std::string& evaluation_split() const { return test_split ? *test_split : *validation_split; }
};

/// Where a mapping of keys comes from.
struct KeySource {
  std::filesystem::path file;
  std::map<std::string, std::pair<std::string, int>> lines;  ///< file and line of each key
  std::vector<std::string> repeated = {};                    ///< messages about keys that are there twice

  /// "file:line: key" for messages; "file: key" if the line is not known.
  std::string place(const std::string& key) const;
};

/// Checks the keys of a task and reads them. @throws ConfigError with file and line; DataError for a template.
TaskConfig read_task_config(const nlohmann::ordered_json& keys, const KeySource& source);

/// A group with the metrics that it combines.
struct TaskGroup {
  struct Metric {
    std::string name;
    bool weight_by_size = true;
  };
  std::string name, alias, version;
  std::optional<double> chance;           ///< athanor.chance
  std::vector<PublishedScore> published;  ///< athanor.published
  std::vector<std::string> members;       ///< direct ones: tasks and groups, by name
  std::vector<int64_t> leaves;            ///< indices of all tasks below it, in the TaskSet
  std::vector<Metric> metrics;
};

/// Reads the keys of a group, except its members. @throws ConfigError.
TaskGroup read_group_config(const nlohmann::ordered_json& keys, const KeySource& source);

/// True for keys of a group that are no overrides of its tasks' keys.
bool is_group_key(const std::string& key);

}  // namespace athanor::tasks
