#include "tasks/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace athanor::tasks {
namespace {

using Json = nlohmann::ordered_json;

struct KnownMetric {
  OutputType type;
  const char *name, *aggregation;
  bool higher_is_better;
};

constexpr KnownMetric kMetrics[] = {
    {OutputType::kMultipleChoice, "acc", "mean", true},
    {OutputType::kMultipleChoice, "acc_norm", "mean", true},
    {OutputType::kMultipleChoice, "acc_bytes", "mean", true},
    {OutputType::kMultipleChoice, "acc_mutual_info", "mean", true},
    {OutputType::kMultipleChoice, "exact_match", "mean", true},
    {OutputType::kMultipleChoice, "f1", "f1", true},
    {OutputType::kMultipleChoice, "mcc", "matthews_corrcoef", true},
    {OutputType::kMultipleChoice, "brier_score", "brier_score", false},
    {OutputType::kLoglikelihood, "perplexity", "perplexity", false},
    {OutputType::kLoglikelihood, "acc", "mean", true},
    {OutputType::kRolling, "word_perplexity", "weighted_perplexity", false},
    {OutputType::kRolling, "byte_perplexity", "weighted_perplexity", false},
    {OutputType::kRolling, "bits_per_byte", "bits_per_byte", false},
    {OutputType::kRolling, "token_perplexity", "weighted_perplexity", false},
};

// numpy.argmax: the first of the largest; a NaN counts as the largest.
int64_t first_largest(const std::vector<double>& values) {
  size_t best = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) return static_cast<int64_t>(i);
    if (values[i] > values[best]) best = i;
  }
  return static_cast<int64_t>(best);
}

// Python's x ** 2 is pow(), which a compiler would replace by a product.
double square(double x) {
  volatile double two = 2;
  return std::pow(x, two);
}

std::vector<double> choice_scores(const std::string& metric, const TaskDocument& document,
                                  std::span<const Answer> answers) {
  const size_t n = document.choice_characters.size();
  std::vector<double> scores(n);
  for (size_t i = 0; i < n; ++i) {
    scores[i] = answers[i].log_likelihood;
    if (metric == "acc_norm") scores[i] /= static_cast<double>(document.choice_characters[i]);
    if (metric == "acc_bytes") scores[i] /= static_cast<double>(document.choice_bytes[i]);
    if (metric == "acc_mutual_info") scores[i] -= answers[n + i].log_likelihood;
  }
  return scores;
}

bool is_gold(const TaskDocument& document, int64_t choice) {
  return std::find(document.gold.begin(), document.gold.end(), choice) != document.gold.end();
}

Json probabilities(const std::vector<double>& scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> powers;
  double sum = 0;
  for (const double score : scores) {
    powers.push_back(std::exp(score - largest));
    sum += powers.back();
  }
  for (double& power : powers) power /= sum;
  return powers;
}

Json choice_metric(const std::string& metric, const TaskDocument& document, std::span<const Answer> answers) {
  if (metric == "exact_match") {
    const auto greedy = [&](int64_t choice) { return answers[static_cast<size_t>(choice)].is_greedy; };
    return std::any_of(document.gold.begin(), document.gold.end(), greedy) ? 1 : 0;
  }
  const auto scores = choice_scores(metric, document, answers);
  if (metric == "brier_score") return Json::array({document.gold.at(0), probabilities(scores)});
  const int64_t predicted = first_largest(scores);
  if (metric == "f1" || metric == "mcc") return Json::array({document.gold.at(0), predicted});
  return is_gold(document, predicted) ? 1.0 : 0.0;
}

// The mean of values that are 0 or 1, one bit each: the standard error is a sum in the order of the documents.
class ShareSum : public MetricSum {
 public:
  void add(const Json& contribution) override { values_.push_back(contribution.get<double>() != 0); }
  double value() const override {
    double sum = 0;
    for (const bool value : values_) sum += value ? 1.0 : 0.0;
    return sum / static_cast<double>(values_.size());
  }
  std::optional<double> standard_error() const override {
    if (values_.size() < 2) return std::nullopt;
    const double mean = value();
    const double squares[2] = {square(0.0 - mean), square(1.0 - mean)};
    double sum = 0;
    for (const bool value : values_) sum += squares[value ? 1 : 0];
    const auto n = static_cast<double>(values_.size());
    return std::sqrt(sum / (n - 1)) / std::sqrt(n);
  }
  bool has_standard_error() const override { return true; }

 private:
  std::vector<bool> values_;
};

class PerplexitySum : public MetricSum {
 public:
  void add(const Json& contribution) override {
    sum_ += contribution.get<double>();
    ++count_;
  }
  double value() const override { return std::exp(-(sum_ / static_cast<double>(count_))); }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

// (log-likelihood, words or bytes): the ratio of the sums.
class WeightedSum : public MetricSum {
 public:
  explicit WeightedSum(bool bits) : bits_(bits) {}
  void add(const Json& contribution) override {
    sum_ += contribution.at(0).get<double>();
    weight_ += contribution.at(1).get<int64_t>();
  }
  double value() const override {
    const double mean = sum_ / static_cast<double>(weight_);
    return bits_ ? -mean / std::log(2) : std::exp(-mean);
  }

 private:
  bool bits_;
  double sum_ = 0;
  int64_t weight_ = 0;
};

// (gold, predicted): how often each pair occurred.
class ConfusionSum : public MetricSum {
 public:
  explicit ConfusionSum(bool is_f1) : is_f1_(is_f1) {}
  void add(const Json& contribution) override {
    ++counts_[{contribution.at(0).get<int64_t>(), contribution.at(1).get<int64_t>()}];
  }
  double value() const override { return is_f1_ ? f1() : matthews(); }

 private:
  int64_t count(int64_t gold, int64_t predicted) const {
    const auto found = counts_.find({gold, predicted});
    return found == counts_.end() ? 0 : found->second;
  }
  // The choice 1 counts as positive, the choice 0 as negative.
  double f1() const {
    const auto right = static_cast<double>(2 * count(1, 1));
    const auto all = right + static_cast<double>(count(0, 1) + count(1, 0));
    return all == 0 ? 0.0 : right / all;
  }
  // Gorodkin 2004, for any number of choices.
  double matthews() const {
    std::map<int64_t, double> golds, predictions;
    double right = 0, all = 0;
    for (const auto& [pair, times] : counts_) {
      const auto n = static_cast<double>(times);
      golds[pair.first] += n;
      predictions[pair.second] += n;
      all += n;
      if (pair.first == pair.second) right += n;
    }
    double both = 0, gold_squares = 0, prediction_squares = 0;
    for (const auto& [choice, n] : golds) {
      gold_squares += n * n;
      const auto found = predictions.find(choice);
      if (found != predictions.end()) both += n * found->second;
    }
    for (const auto& [choice, n] : predictions) prediction_squares += n * n;
    const double covariances = (all * all - prediction_squares) * (all * all - gold_squares);
    return covariances == 0 ? 0.0 : (right * all - both) / std::sqrt(covariances);
  }

  bool is_f1_;
  std::map<std::pair<int64_t, int64_t>, int64_t> counts_;
};

class BrierSum : public MetricSum {
 public:
  void add(const Json& contribution) override {
    const auto gold = contribution.at(0).get<size_t>();
    const auto& predictions = contribution.at(1);
    for (size_t i = 0; i < predictions.size(); ++i) {
      const double distance = predictions[i].get<double>() - (i == gold ? 1.0 : 0.0);
      sum_ += distance * distance;
    }
    ++count_;
  }
  double value() const override { return sum_ / static_cast<double>(count_); }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace

std::string_view output_type_name(OutputType type) {
  return type == OutputType::kMultipleChoice  ? "multiple_choice"
         : type == OutputType::kLoglikelihood ? "loglikelihood"
                                              : "loglikelihood_rolling";
}

MetricUse find_metric(OutputType type, const std::string& name, const std::string& what) {
  std::vector<std::string> names;
  for (const auto& metric : kMetrics) {
    if (metric.type != type) continue;
    if (name == metric.name) return {metric.name, metric.aggregation, metric.higher_is_better};
    names.emplace_back(metric.name);
  }
  fail<ConfigError>("{}: {} has no metric {}{}; it has {}", what, output_type_name(type), printable(name),
                    did_you_mean(name, names), join(names));
}

std::vector<MetricUse> default_metrics(OutputType type) {
  std::vector<std::string> names{"acc", "acc_norm"};
  if (type == OutputType::kLoglikelihood) names = {"perplexity", "acc"};
  if (type == OutputType::kRolling) names = {"word_perplexity", "byte_perplexity", "bits_per_byte"};
  std::vector<MetricUse> metrics;
  for (const auto& name : names) metrics.push_back(find_metric(type, name, ""));
  return metrics;
}

Json metric_of_document(OutputType type, const std::string& metric, const TaskDocument& document,
                        std::span<const Answer> answers) {
  ATHANOR_ASSERT(answers.size() == document.requests.size());
  if (type == OutputType::kMultipleChoice) return choice_metric(metric, document, answers);
  const Answer& answer = answers[0];
  if (type == OutputType::kLoglikelihood)
    return metric == "acc" ? Json(answer.is_greedy ? 1 : 0) : Json(answer.log_likelihood);
  const int64_t weight = metric == "word_perplexity"    ? document.num_words
                         : metric == "token_perplexity" ? answer.num_tokens
                                                        : document.num_bytes;
  return Json::array({answer.log_likelihood, weight});
}

std::unique_ptr<MetricSum> make_metric_sum(const MetricUse& metric) {
  if (metric.aggregation == "perplexity") return std::make_unique<PerplexitySum>();
  if (metric.aggregation == "weighted_perplexity") return std::make_unique<WeightedSum>(false);
  if (metric.aggregation == "bits_per_byte") return std::make_unique<WeightedSum>(true);
  if (metric.aggregation == "brier_score") return std::make_unique<BrierSum>();
  if (metric.aggregation == "f1") return std::make_unique<ConfusionSum>(true);
  if (metric.aggregation == "matthews_corrcoef") return std::make_unique<ConfusionSum>(false);
  return std::make_unique<ShareSum>();
}

}  // namespace athanor::tasks
