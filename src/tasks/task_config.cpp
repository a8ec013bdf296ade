#include "tasks/task_config.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "tasks/key_reader.h"

namespace athanor::tasks {
namespace {

using Json = nlohmann::ordered_json;

// lm_eval's keys, in the order in which its results list them; and ours, `athanor`.
const std::vector<std::string> kTaskKeys{"task",
                                         "task_alias",
                                         "tag",
                                         "custom_dataset",
                                         "dataset_path",
                                         "dataset_name",
                                         "dataset_kwargs",
                                         "training_split",
                                         "validation_split",
                                         "test_split",
                                         "fewshot_split",
                                         "process_docs",
                                         "doc_to_text",
                                         "doc_to_target",
                                         "doc_to_image",
                                         "doc_to_audio",
                                         "unsafe_code",
                                         "doc_to_choice",
                                         "process_results",
                                         "use_prompt",
                                         "description",
                                         "target_delimiter",
                                         "fewshot_delimiter",
                                         "fewshot_config",
                                         "num_fewshot",
                                         "metric_list",
                                         "output_type",
                                         "generation_kwargs",
                                         "repeats",
                                         "filter_list",
                                         "should_decontaminate",
                                         "doc_to_decontamination_query",
                                         "gen_prefix",
                                         "metadata",
                                         "athanor"};

// Keys with a meaning that this program does not have, and what to do.
const std::vector<std::pair<std::string, std::string>> kRefusedKeys{
    {"class", "names a Python class; write the task as keys"},
    {"custom_dataset", "loads rows by Python code; write the rows to a file, and its name under athanor.data"},
    {"doc_to_image", "needs a model that sees; leave the task out"},
    {"doc_to_audio", "needs a model that hears; leave the task out"},
    {"process_results", "is code that scores; name metrics in metric_list"},
    {"use_prompt", "takes templates from promptsource; write them under doc_to_text and doc_to_target"},
    {"task_list", "is not known here; list the tasks of a file under athanor.for_each"}};

const std::vector<std::string> kFewshotKeys{
    "sampler",       "split",         "process_docs", "fewshot_indices",   "samples",         "doc_to_text",
    "doc_to_choice", "doc_to_target", "gen_prefix",   "fewshot_delimiter", "target_delimiter"};
// Those from weight_by_size on have no effect on scores: lm_eval passes them to metrics of generated text alone.
const std::vector<std::string> kMetricKeys{"metric",         "aggregation",       "higher_is_better",
                                           "hf_evaluate",    "weight_by_size",    "ignore_case",
                                           "ignore_numbers", "regexes_to_ignore", "ignore_punctuation"};
const std::vector<std::string> kOwnKeys{"data", "where", "chance", "published", "stride", "for_each"};

class ConfigReader {
 public:
  ConfigReader(const Json& keys, const KeySource& source) : keys_(keys), source_(source), reader_(keys, source) {}

  TaskConfig read() {
    for (const auto& [key, what] : kRefusedKeys) {
      reader_.refuse_function(key);
      if (reader_.find(key)) reader_.complain(key, "{}", what);
    }
    reader_.check_names(kTaskKeys);
    config_.file = source_.file;
    config_.name = reader_.text("task").value_or("");
    if (config_.name.empty()) reader_.complain("task", "is missing; it is the name of the task");
    config_.alias = reader_.text("task_alias").value_or(config_.name);
    config_.where = fmt::format("task {} ({})", config_.name, source_.file.filename().string());
    read_output_type();
    refuse_scoring_functions();
    read_splits();
    config_.description = rule("description", "description");
    read_doc_rules();
    read_examples();
    config_.num_fewshot = reader_.count("num_fewshot");
    if (reader_.count("repeats").value_or(1) != 1)
      reader_.complain("repeats", "repeats requests, which scores do not need; leave it out");
    read_metrics();
    check_filters();
    read_own_keys();
    config_.version = "Yaml";
    if (const auto* metadata = reader_.find("metadata");
        metadata && metadata->is_object() && metadata->contains("version"))
      config_.version = metadata->at("version");
    fill_keys();
    return std::move(config_);
  }

 private:
  void read_output_type() {
    // lm_eval's default is generate_until.
    const std::string type = reader_.text("output_type").value_or("generate_until");
    if (type == "multiple_choice") {
      config_.output_type = OutputType::kMultipleChoice;
    } else if (type == "loglikelihood") {
      config_.output_type = OutputType::kLoglikelihood;
    } else if (type == "loglikelihood_rolling") {
      config_.output_type = OutputType::kRolling;
    } else if (type == "generate_until") {
      reader_.complain("output_type",
                       "is generate_until: tasks that judge generated text are not run here; there are "
                       "multiple_choice, loglikelihood and loglikelihood_rolling");
    } else {
      reader_.complain("output_type", "is {}{}; there are multiple_choice, loglikelihood and loglikelihood_rolling",
                       type, did_you_mean(type, {"multiple_choice", "loglikelihood", "loglikelihood_rolling"}));
    }
  }

  // Before those that a template can replace: nothing else makes such a task run.
  void refuse_scoring_functions() const {
    reader_.refuse_function("filter_list");
    const auto* list = reader_.find("metric_list");
    if (!list || !list->is_array()) return;
    for (const auto& entry : *list) {
      if (!entry.is_object()) continue;
      const KeyReader reader(entry, source_, "metric_list.");
      reader.refuse_function("metric");
      reader.refuse_function("aggregation");
    }
  }

  void read_splits() {
    config_.training_split = reader_.text("training_split");
    config_.validation_split = reader_.text("validation_split");
    config_.test_split = reader_.text("test_split");
    config_.fewshot_split = reader_.text("fewshot_split");
    if (!config_.validation_split && !config_.test_split)
      reader_.complain("test_split",
                       "is missing; name a test_split or a validation_split, whose rows are the documents");
  }

  DocRule rule_of(const KeyReader& reader, const std::string& key, const std::string& shown) const {
    reader.refuse_function(key);
    DocRule rule;
    if (const auto* value = reader.find(key)) rule.given = *value;
    if (rule.given.is_string())
      rule.compiled = Template::compile(rule.given.get<std::string>(), config_.where + ": " + shown);
    return rule;
  }
  DocRule rule(const std::string& key, const std::string& shown) const { return rule_of(reader_, key, shown); }

  std::vector<std::pair<std::string, Template>> added_fields(const KeyReader& reader, const std::string& prefix) const {
    reader.refuse_function("process_docs");
    std::vector<std::pair<std::string, Template>> fields;
    const auto* value = reader.find("process_docs");
    if (!value) return fields;
    if (!value->is_object())
      reader.complain("process_docs", "is {}, a mapping of fields to templates is needed", describe_json(*value));
    for (const auto& [name, source] : value->items()) {
      const std::string key = prefix + "process_docs." + name;
      if (!source.is_string())
        reader.complain("process_docs." + name, "is {}, a template is needed", describe_json(source));
      fields.emplace_back(name, Template::compile(source.get<std::string>(), config_.where + ": " + key));
    }
    return fields;
  }

  void check_rule(const DocRule& rule, const std::string& key, bool takes_number, bool takes_list,
                  bool takes_mapping) const {
    const auto& value = rule.given;
    const bool fits = value.is_null() || value.is_string() || (takes_number && value.is_number_integer()) ||
                      (takes_list && value.is_array()) || (takes_mapping && value.is_object());
    if (!fits) reader_.complain(key, "is {}, a template or the name of a field is needed", describe_json(value));
  }

  void read_doc_rules() {
    auto& doc = config_.doc;
    doc.text = rule("doc_to_text", "doc_to_text");
    doc.target = rule("doc_to_target", "doc_to_target");
    doc.choice = rule("doc_to_choice", "doc_to_choice");
    doc.prefix = rule("gen_prefix", "gen_prefix");
    check_rule(doc.text, "doc_to_text", true, false, false);
    check_rule(doc.target, "doc_to_target", true, true, false);
    check_rule(doc.choice, "doc_to_choice", false, true, true);
    check_rule(doc.prefix, "gen_prefix", false, false, false);
    for (const auto& [given, key] : {std::pair{&doc.text, "doc_to_text"}, {&doc.target, "doc_to_target"}})
      if (given->given.is_null()) reader_.complain(key, "is missing");
    if (config_.output_type == OutputType::kMultipleChoice && doc.choice.given.is_null())
      reader_.complain("doc_to_choice", "is missing; multiple_choice needs it");
    doc.target_delimiter = reader_.text("target_delimiter").value_or(" ");
    doc.fewshot_delimiter = reader_.text("fewshot_delimiter").value_or("\n\n");
    doc.added_fields = added_fields(reader_, "");
  }

  // fewshot_config overrides what examples have in common with documents.
  void read_examples() {
    config_.example = config_.doc;
    const auto* value = reader_.find("fewshot_config");
    if (!value) return;
    if (!value->is_object()) reader_.complain("fewshot_config", "is {}, a mapping is needed", describe_json(*value));
    const KeyReader reader(*value, source_, "fewshot_config.");
    reader.check_names(kFewshotKeys);
    if (reader.find("fewshot_indices"))
      reader.complain("fewshot_indices", "has no effect in lm_eval 0.4.13; leave it out");
    const std::string sampler = reader.text("sampler").value_or("default");
    config_.takes_first_examples = sampler == "first_n";
    if (sampler != "default" && sampler != "first_n")
      reader.complain("sampler", "is {}{}; there are default and first_n", sampler,
                      did_you_mean(sampler, {"default", "first_n"}));
    if (const auto split = reader.text("split")) config_.fewshot_split = *split;
    read_samples(reader);
    auto& example = config_.example;
    const auto replace = [&](const char* key, DocRule& rule) {
      if (reader.find(key)) rule = rule_of(reader, key, std::string("fewshot_config.") + key);
    };
    replace("doc_to_text", example.text);
    replace("doc_to_target", example.target);
    replace("doc_to_choice", example.choice);
    replace("gen_prefix", example.prefix);
    if (reader.find("process_docs")) example.added_fields = added_fields(reader, "fewshot_config.");
    example.target_delimiter = reader.text("target_delimiter").value_or(example.target_delimiter);
    example.fewshot_delimiter = reader.text("fewshot_delimiter").value_or(example.fewshot_delimiter);
  }

  void read_samples(const KeyReader& reader) {
    reader.refuse_function("samples");
    const auto* samples = reader.find("samples");
    if (!samples) return;
    const bool rows = samples->is_array() &&
                      std::all_of(samples->begin(), samples->end(), [](const Json& row) { return row.is_object(); });
    if (!rows) reader.complain("samples", "is {}, a list of mappings is needed", describe_json(*samples));
    config_.samples.emplace(samples->begin(), samples->end());
  }

  void read_metrics() {
    const auto* list = reader_.find("metric_list");
    if (!list) {
      config_.metrics = default_metrics(config_.output_type);
      return;
    }
    if (!list->is_array() || list->empty())
      reader_.complain("metric_list", "is {}, a list of metrics is needed", describe_json(*list));
    for (const auto& entry : *list) {
      if (!entry.is_object())
        reader_.complain("metric_list", "holds {}, a mapping with `metric` is needed", describe_json(entry));
      const KeyReader reader(entry, source_, "metric_list.");
      reader.check_names(kMetricKeys);
      if (reader.flag("hf_evaluate", false))
        reader.complain("hf_evaluate", "takes a metric from the package evaluate, which is Python; leave it out");
      const auto name = reader.text("metric");
      if (!name) reader_.complain("metric_list", "has an entry without `metric`");
      auto metric = find_metric(config_.output_type, *name, source_.place("metric_list"));
      const std::string aggregation = reader.text("aggregation").value_or(metric.aggregation);
      if (aggregation != metric.aggregation)
        reader.complain("aggregation", "of {} is {}; it has only {}", *name, aggregation, metric.aggregation);
      metric.higher_is_better = reader.flag("higher_is_better", metric.higher_is_better);
      config_.metrics.push_back(std::move(metric));
    }
  }

  // Scores have no text that filters could change; the filter that lm_eval uses without a list is allowed.
  void check_filters() const {
    const auto* filters = reader_.find("filter_list");
    if (!filters) return;
    const bool trivial = filters->is_array() && filters->size() == 1 && (*filters)[0].is_object() &&
                         (*filters)[0].value("name", Json()) == "none" &&
                         (*filters)[0].value("filter", Json()) == Json::array({{{"function", "take_first"}}});
    if (!trivial)
      reader_.complain("filter_list",
                       "filters generated text, which tasks of log-likelihoods do not have; leave it out");
  }

  void read_own_keys() {
    config_.dataset_name = reader_.text("dataset_name").value_or("");
    config_.data = config_.name;
    const auto* value = reader_.find("athanor");
    if (!value) return;
    if (!value->is_object()) reader_.complain("athanor", "is {}, a mapping is needed", describe_json(*value));
    const KeyReader reader(*value, source_, "athanor.");
    reader.check_names(kOwnKeys);
    config_.data = reader.text("data").value_or(config_.data);
    if (config_.data.empty() || config_.data.find("..") != std::string::npos || config_.data.starts_with('/'))
      reader.complain("data", "is \"{}\"; it is the base name of files below --data", config_.data);
    if (const auto condition = reader.text("where"))
      config_.selects = Template::compile_expression(*condition, config_.where + ": athanor.where");
    config_.chance = reader.number("chance");
    config_.stride = reader.count("stride").value_or(0);
    if (config_.stride > 0 && config_.output_type != OutputType::kRolling)
      reader.complain("stride", "needs output_type loglikelihood_rolling");
    config_.published = read_published(reader, source_);
  }

  void fill_keys() {
    Json defaults{{"unsafe_code", false},         {"description", ""}, {"target_delimiter", " "},
                  {"fewshot_delimiter", "\n\n"},  {"num_fewshot", 0},  {"repeats", 1},
                  {"should_decontaminate", false}};
    for (const auto& key : kTaskKeys) {
      if (key == "tag") continue;  // as in lm_eval
      const auto found = keys_.find(key);
      if (found != keys_.end() && !found->is_null()) {
        config_.keys[key] = *found;
      } else if (defaults.contains(key)) {
        config_.keys[key] = defaults[key];
      }
    }
    config_.keys["metadata"]["config_source"] = source_.file.string();
  }

  const Json& keys_;
  const KeySource& source_;
  KeyReader reader_;
  TaskConfig config_;
};

}  // namespace

bool TaskConfig::has_metric(std::string_view metric) const {
  return std::any_of(metrics.begin(), metrics.end(), [&](const MetricUse& use) { return use.name == metric; });
}

TaskConfig read_task_config(const Json& keys, const KeySource& source) { return ConfigReader(keys, source).read(); }

}  // namespace athanor::tasks
