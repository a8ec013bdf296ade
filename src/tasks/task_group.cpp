// The keys of groups, and published scores, which tasks have, too.

#include <algorithm>

#include "tasks/key_reader.h"
#include "tasks/task_config.h"

namespace athanor::tasks {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<std::string> kGroupKeys{"group",    "group_alias", "task", "aggregate_metric_list",
                                          "metadata", "athanor"};

}  // namespace

std::vector<PublishedScore> read_published(const KeyReader& reader, const KeySource& source) {
  std::vector<PublishedScore> scores;
  const auto* published = reader.find("published");
  if (!published) return scores;
  if (!published->is_array()) reader.complain("published", "is {}, a list is needed", describe_json(*published));
  for (const auto& entry : *published) {
    if (!entry.is_object()) reader.complain("published", "holds {}, a mapping is needed", describe_json(entry));
    const KeyReader score(entry, source, "athanor.published.");
    score.check_names({"model", "metric", "value", "shots", "source"});
    if (!score.text("model") || !score.text("metric") || !score.number("value") || !score.text("source"))
      reader.complain("published", "has an entry without model, metric, value or source");
    scores.push_back({*score.text("model"), *score.text("metric"), *score.number("value"), score.count("shots"),
                      *score.text("source")});
  }
  return scores;
}

bool is_group_key(const std::string& key) {
  return std::find(kGroupKeys.begin(), kGroupKeys.end(), key) != kGroupKeys.end();
}

TaskGroup read_group_config(const Json& keys, const KeySource& source) {
  const KeyReader reader(keys, source);
  TaskGroup group;
  group.name = reader.text("group").value_or("");
  group.alias = reader.text("group_alias").value_or(group.name);
  group.version = "N/A";
  if (const auto* metadata = reader.find("metadata");
      metadata && metadata->is_object() && metadata->contains("version")) {
    const auto& version = metadata->at("version");
    group.version = version.is_string() ? version.get<std::string>() : version.dump();
  }
  if (const auto* own = reader.find("athanor")) {
    if (!own->is_object()) reader.complain("athanor", "is {}, a mapping is needed", describe_json(*own));
    const KeyReader own_reader(*own, source, "athanor.");
    own_reader.check_names({"chance", "published"});
    group.chance = own_reader.number("chance");
    group.published = read_published(own_reader, source);
  }
  const auto* metrics = reader.find("aggregate_metric_list");
  if (!metrics) return group;
  const Json list = metrics->is_array() ? *metrics : Json::array({*metrics});
  for (const auto& entry : list) {
    if (!entry.is_object())
      reader.complain("aggregate_metric_list", "holds {}, a mapping is needed", describe_json(entry));
    const KeyReader metric(entry, source, "aggregate_metric_list.");
    metric.refuse_function("aggregation");
    metric.check_names({"metric", "filter_list", "aggregation", "weight_by_size"});
    const auto name = metric.text("metric");
    if (!name) reader.complain("aggregate_metric_list", "has an entry without `metric`");
    if (metric.text("aggregation").value_or("mean") != "mean") metric.complain("aggregation", "is not mean");
    const auto* filters = metric.find("filter_list");
    if (filters && *filters != "none" && *filters != Json::array({"none"}))
      metric.complain("filter_list", "names filters, which tasks of log-likelihoods do not have; leave it out");
    group.metrics.push_back({*name, metric.flag("weight_by_size", true)});
  }
  return group;
}

}  // namespace athanor::tasks
