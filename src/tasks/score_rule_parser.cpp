// Reads rules: NAME[.METRIC] (< | <= | > | >=) SUM [after NUMBER (tokens | steps)], where SUM adds and subtracts
// NUMBER, [NUMBER] chance, [NUMBER] best, [NUMBER] previous and [NUMBER] stderr.

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "tasks/score_rule.h"

namespace athanor::tasks {
namespace {

using Term = ScoreRule::Term;
using Comparison = ScoreRule::Comparison;

constexpr std::pair<const char*, Term> kTerms[] = {
    {"chance", Term::kChance}, {"best", Term::kBest}, {"previous", Term::kPrevious}, {"stderr", Term::kStandardError}};

std::string in_quotes(std::string_view text) { return '"' + printable(text) + '"'; }
bool is_space(char c) { return c == ' ' || c == '\t'; }
bool is_of_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class RuleParser {
 public:
  RuleParser(const std::string& text, const std::vector<RuleSubject>& subjects, const std::string& where)
      : text_(text), subjects_(subjects), where_(where) {}

  ScoreRule parse() {
    rule_.text = text_;
    const size_t sign = text_.find_first_of("<>");
    if (sign == std::string::npos) fail_at(0, "a rule has a comparison (<, <=, > or >=), and this one has none");
    read_subject(text_.substr(0, sign));
    at_ = sign;
    read_comparison();
    read_sum();
    if (!at_end()) read_after();
    if (!at_end()) fail_at(at_, "nothing may follow here");
    return std::move(rule_);
  }

 private:
  [[noreturn]] void fail_at(size_t at, const std::string& what) const {
    fail<ConfigError>("{}, character {}: {}: {}", where_, at + 1, what, in_quotes(text_));
  }

  bool at_end() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    return at_ == text_.size();
  }

  // A name of a task may have a dot, so the whole is tried first.
  void read_subject(std::string name) {
    const size_t begin = std::min(name.find_first_not_of(" \t"), name.size());
    name = name.substr(begin, name.find_last_not_of(" \t") + 1 - begin);
    if (name.empty()) fail_at(begin, "the name of a task is missing before the comparison");
    const RuleSubject* subject = find_subject(name);
    std::string metric;
    if (const size_t dot = name.rfind('.'); !subject && dot != std::string::npos) {
      metric = name.substr(dot + 1);
      subject = find_subject(name.substr(0, dot));
      if (!subject) name = name.substr(0, dot);
      metric_at_ = begin + dot + 1;
    }
    if (!subject) fail_at(begin, fmt::format("eval.tasks has no {}{}", in_quotes(name), did_you_mean(name, names())));
    subject_ = subject;
    rule_.task = subject->name;
    if (subject->metrics.empty())
      fail_at(begin, fmt::format("the group {} combines no metric; name one of its tasks", subject->name));
    const auto* found = metric_at_ == 0 ? &subject->metrics.front() : subject->find(metric);
    if (!found) {
      std::vector<std::string> metrics;
      for (const auto& each : subject->metrics) metrics.push_back(each.name);
      fail_at(metric_at_, fmt::format("{} has no metric {}{}; it has {}", subject->name, in_quotes(metric),
                                      did_you_mean(metric, metrics), join(metrics)));
    }
    rule_.metric = *found;
  }

  const RuleSubject* find_subject(std::string_view name) const {
    for (const auto& subject : subjects_) {
      if (subject.name == name) return &subject;
    }
    return nullptr;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& subject : subjects_) names.push_back(subject.name);
    return names;
  }

  void read_comparison() {
    const bool less = text_[at_++] == '<', or_equal = at_ < text_.size() && text_[at_] == '=';
    at_ += or_equal;
    rule_.comparison = less ? (or_equal ? Comparison::kLessOrEqual : Comparison::kLess)
                            : (or_equal ? Comparison::kGreaterOrEqual : Comparison::kGreater);
  }

  void read_sum() {
    double sign = 1;
    if (!at_end() && (text_[at_] == '-' || text_[at_] == '+')) sign = text_[at_++] == '-' ? -1 : 1;
    read_summand(sign);
    while (!at_end() && (text_[at_] == '-' || text_[at_] == '+')) {
      sign = text_[at_++] == '-' ? -1 : 1;
      read_summand(sign);
    }
  }

  void read_summand(double sign) {
    if (at_end()) fail_at(at_, "a number, chance, best, previous or stderr is missing here");
    const auto number = read_number();
    at_end();
    const size_t begin = at_;
    const std::string word = peek_word();
    if (number && (word.empty() || word == "after")) {
      rule_.limit.push_back({sign * *number, Term::kNumber});
      return;
    }
    std::vector<std::string> allowed;
    for (const auto& [name, term] : kTerms) {
      allowed.emplace_back(name);
      if (word != name) continue;
      at_ += word.size();
      rule_.limit.push_back({sign * number.value_or(1), term});
      return check_term(term, begin);
    }
    const std::string got = word.empty() ? std::string(1, text_[begin]) : word;
    fail_at(begin, fmt::format("{} is no term; {}chance, best, previous and stderr are{}", in_quotes(got),
                               number ? "after a number " : "a number, ", did_you_mean(got, allowed)));
  }

  void check_term(Term term, size_t at) {
    const std::string& metric = rule_.metric.name;
    if (term == Term::kStandardError && !rule_.metric.has_standard_error)
      fail_at(at, fmt::format("{} {} has no standard error; use a number", rule_.task, metric));
    if (term != Term::kChance) return;
    const bool is_stated = subject_->chance && (metric == subject_->metrics.front().name || metric.starts_with("acc"));
    if (!is_stated)
      fail_at(at, fmt::format("the chance of {} {} is not known; use a number, or state athanor.chance in the task's "
                              "file",
                              rule_.task, metric));
    rule_.chance = *subject_->chance;
  }

  void read_after() {
    const size_t begin = at_;
    const std::string word = take_word();
    if (word != "after") {
      const std::string got = word.empty() ? std::string(1, text_[begin]) : word;
      fail_at(begin,
              fmt::format("expected +, -, or \"after\", got {}{}", in_quotes(got), did_you_mean(got, {"after"})));
    }
    at_end();
    const size_t number_at = at_;
    const auto number = read_number();
    if (!number) fail_at(number_at, "a number of tokens or steps is missing after \"after\"");
    at_end();
    const size_t unit_at = at_;
    const std::string unit = take_word();
    if (unit != "tokens" && unit != "steps")
      fail_at(unit_at, fmt::format("\"after\" a number of tokens or steps, not of {}{}", in_quotes(unit),
                                   did_you_mean(unit, {"tokens", "steps"})));
    rule_.after = unit == "tokens" ? ScoreRule::After::kTokens : ScoreRule::After::kSteps;
    rule_.begin = *number;
  }

  std::optional<double> read_number() {
    if (at_ == text_.size() || (text_[at_] != '.' && (text_[at_] < '0' || text_[at_] > '9'))) return std::nullopt;
    double number = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), number);
    if (error != std::errc() || !std::isfinite(number)) fail_at(at_, "a number cannot be read here");
    at_ += static_cast<size_t>(end - begin);
    return number;
  }

  std::string peek_word() const {
    size_t end = at_;
    while (end < text_.size() && is_of_word(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }
  std::string take_word() {
    std::string word = peek_word();
    at_ += word.size();
    return word;
  }

  const std::string& text_;
  const std::vector<RuleSubject>& subjects_;
  const std::string& where_;
  const RuleSubject* subject_ = nullptr;
  size_t at_ = 0, metric_at_ = 0;
  ScoreRule rule_;
};

}  // namespace

ScoreRule parse_score_rule(const std::string& text, const std::vector<RuleSubject>& subjects,
                           const std::string& where) {
  return RuleParser(text, subjects, where).parse();
}

}  // namespace athanor::tasks
