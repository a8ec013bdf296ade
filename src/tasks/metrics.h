#pragma once
// The metrics of lm_eval that log-likelihoods give, and token_perplexity, which lm_eval does not have.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/task_document.h"

namespace athanor::tasks {

enum class OutputType { kMultipleChoice, kLoglikelihood, kRolling };

/// lm_eval's name: multiple_choice, loglikelihood, loglikelihood_rolling.
std::string_view output_type_name(OutputType type);

/// A metric as a task file names it.
struct MetricUse {
  std::string name, aggregation;
  bool higher_is_better = true;
};

/// Returns the metric with its own aggregation and direction.
/// @throws ConfigError if answers of this type do not give it; the message begins with `what` and has the nearest name.
MetricUse find_metric(OutputType type, const std::string& name, const std::string& what);
/// Returns lm_eval's metrics for task files without a metric_list.
std::vector<MetricUse> default_metrics(OutputType type);

/// What a document contributes to a metric: 0 or 1, a pair (gold, predicted) and so on, in the form that lm_eval writes
/// into its lines of samples.
nlohmann::ordered_json metric_of_document(OutputType type, const std::string& metric, const TaskDocument& document,
                                          std::span<const Answer> answers);

/// Adds up what the documents of a task contribute to one metric.
class MetricSum {
 public:
  virtual ~MetricSum() = default;
  virtual void add(const nlohmann::ordered_json& contribution) = 0;
  /// Returns the metric of the documents, at least one, in lm_eval's arithmetic.
  virtual double value() const = 0;
  /// Returns none where lm_eval has "N/A", for less than two documents, and where it draws bootstrap samples
  /// (perplexity, f1, mcc).
  virtual std::optional<double> standard_error() const { return std::nullopt; }
  /// Returns whether two documents and more have one.
  virtual bool has_standard_error() const { return false; }
};

std::unique_ptr<MetricSum> make_metric_sum(const MetricUse& metric);

}  // namespace athanor::tasks
