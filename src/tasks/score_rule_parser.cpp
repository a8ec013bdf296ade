// Reads rules: NAME[.METRIC] (< | <= | > | >=) SUM [after NUMBER (tokens | steps)], where SUM adds and subtracts
// NUMBER, [NUMBER] chance, [NUMBER] best, [NUMBER] previous and [NUMBER] stderr.

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/scanner.h"
#include "base/text.h"
#include "tasks/score_rule.h"

namespace athanor::tasks {
namespace {

using Term = ScoreRule::Term;
using Comparison = ScoreRule::Comparison;

constexpr std::pair<const char*, Term> kTerms[] = {
    {"chance", Term::kChance}, {"best", Term::kBest}, {"previous", Term::kPrevious}, {"stderr", Term::kStandardError}};

std::string in_quotes(std::string_view text) { return '"' + printable(text) + '"'; }

constexpr std::string_view kRuleBlanks = " \t", kRuleOperators[] = {"<=", ">=", "<", ">", "+", "-"};
constexpr Lexicon kRuleLexicon = {
    .blanks = [](std::string_view rest) { return std::min(rest.find_first_not_of(kRuleBlanks), rest.size()); },
    .name_character = [](std::string_view rest, bool) -> size_t { return is_ascii_letter(rest[0]) || rest[0] == '_'; },
    .operators = kRuleOperators,
    .quotes = "",
    .bare_point = true};

class RuleParser : private Scanner {
 public:
  RuleParser(const std::string& text, const std::vector<RuleSubject>& subjects, const std::string& where)
      : Scanner(text, kRuleLexicon), text_(text), subjects_(subjects), where_(where) {}

  ScoreRule parse() {
    rule_.text = text_;
    const size_t sign = text_.find_first_of("<>");
    if (sign == std::string::npos) fail_at(0, "a rule has a comparison (<, <=, > or >=), and this one has none");
    read_subject(text_.substr(0, sign));
    go_to(sign);
    read_comparison();
    read_sum();
    if (!is_done()) read_after();
    if (!is_done()) fail_at(here(), "nothing may follow here");
    return std::move(rule_);
  }

 private:
  [[noreturn]] void fail_at(size_t at, const std::string& what) const {
    fail<ConfigError>("{}, character {}: {}: {}", where_, at + 1, what, in_quotes(text_));
  }

  bool is_done() {
    skip_blanks();
    return at_end();
  }

  // A name of a task may have a dot, so the whole is tried first.
  void read_subject(std::string name) {
    const size_t begin = std::min(name.find_first_not_of(kRuleBlanks), name.size());
    name = name.substr(begin, name.find_last_not_of(kRuleBlanks) + 1 - begin);
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
    if (take("<="))
      rule_.comparison = Comparison::kLessOrEqual;
    else if (take("<"))
      rule_.comparison = Comparison::kLess;
    else if (take(">="))
      rule_.comparison = Comparison::kGreaterOrEqual;
    else if (take(">"))
      rule_.comparison = Comparison::kGreater;
  }

  void read_sum() {
    const bool is_negative = take("-");
    if (!is_negative) take("+");
    read_summand(is_negative ? -1 : 1);
    while (true) {
      if (take("-"))
        read_summand(-1);
      else if (take("+"))
        read_summand(1);
      else
        return;
    }
  }

  void read_summand(double sign) {
    if (is_done()) fail_at(here(), "a number, chance, best, previous or stderr is missing here");
    const auto number = read_number();
    skip_blanks();
    const size_t begin = here();
    const std::string word(peek_name());
    if (number && (word.empty() || word == "after")) {
      rule_.limit.push_back({sign * *number, Term::kNumber});
      return;
    }
    std::vector<std::string> allowed;
    for (const auto& [name, term] : kTerms) {
      allowed.emplace_back(name);
      if (word != name) continue;
      skip(word.size());
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
    const size_t begin = here();
    const std::string word(take_name());
    if (word != "after") {
      const std::string got = word.empty() ? std::string(1, text_[begin]) : word;
      fail_at(begin,
              fmt::format("expected +, -, or \"after\", got {}{}", in_quotes(got), did_you_mean(got, {"after"})));
    }
    skip_blanks();
    const size_t number_at = here();
    const auto number = read_number();
    if (!number) fail_at(number_at, "a number of tokens or steps is missing after \"after\"");
    skip_blanks();
    const size_t unit_at = here();
    const std::string unit(take_name());
    if (unit != "tokens" && unit != "steps")
      fail_at(unit_at, fmt::format("\"after\" a number of tokens or steps, not of {}{}", in_quotes(unit),
                                   did_you_mean(unit, {"tokens", "steps"})));
    rule_.after = unit == "tokens" ? ScoreRule::After::kTokens : ScoreRule::After::kSteps;
    rule_.begin = *number;
  }

  std::optional<double> read_number() {
    if (peek() != '.' && !is_digit(peek())) return std::nullopt;
    const size_t begin = here();
    const std::string_view digits = take_number();
    double number = 0;
    const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), number).ec;
    if (error != std::errc() || !std::isfinite(number)) fail_at(begin, "a number cannot be read here");
    return number;
  }

  const std::string& text_;
  const std::vector<RuleSubject>& subjects_;
  const std::string& where_;
  const RuleSubject* subject_ = nullptr;
  size_t metric_at_ = 0;
  ScoreRule rule_;
};

}  // namespace

ScoreRule parse_score_rule(const std::string& text, const std::vector<RuleSubject>& subjects,
                           const std::string& where) {
  return RuleParser(text, subjects, where).parse();
}

}  // namespace athanor::tasks
