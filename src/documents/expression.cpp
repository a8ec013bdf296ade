#include "documents/expression.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "documents/expression_node.h"

namespace athanor::inline documents {
namespace {

using nlohmann::json;
using Kind = ExpressionKind;

// A list or an object is given by its position in the document; strings are there or in the expression.
using Value = std::variant<std::monostate, bool, double, std::string_view, const json*>;

const char* kind_of(const Value& value) {
  constexpr const char* kNames[] = {"missing", "true or false", "a number", "a string", ""};
  if (const auto* node = std::get_if<const json*>(&value)) return (*node)->is_array() ? "a list" : "an object";
  return kNames[value.index()];
}
bool is_missing(const Value& value) { return std::holds_alternative<std::monostate>(value); }

Value value_of(const json& node) {
  switch (node.type()) {
    case json::value_t::boolean: return node.get<bool>();
    case json::value_t::number_integer:
    case json::value_t::number_unsigned:
    case json::value_t::number_float: return node.get<double>();
    case json::value_t::string: return std::string_view(node.get_ref<const std::string&>());
    case json::value_t::array:
    case json::value_t::object: return &node;
    default: return {};
  }
}

bool compares(Kind comparison, int order) {
  switch (comparison) {
    case Kind::kEqual: return order == 0;
    case Kind::kUnequal: return order != 0;
    case Kind::kLess: return order < 0;
    case Kind::kLessEqual: return order <= 0;
    case Kind::kGreater: return order > 0;
    default: return order >= 0;
  }
}

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

class Evaluation {
 public:
  explicit Evaluation(const ExpressionSubject& subject) : subject_(subject) {}

  bool condition(const ExpressionNode& node) const {
    const auto value = evaluate(node);
    if (is_missing(value)) return false;
    if (const auto* truth = std::get_if<bool>(&value)) return *truth;
    throw ExpressionError(node.position,
                          fmt::format("this is {}, a condition is needed; compare it with something", kind_of(value)));
  }

 private:
  Value evaluate(const ExpressionNode& node) const {
    switch (node.kind) {
      case Kind::kLiteral: return literal(node);
      case Kind::kPath: return path(node);
      case Kind::kNot: return !condition(*node.children[0]);
      case Kind::kAnd: return condition(*node.children[0]) && condition(*node.children[1]);
      case Kind::kOr: return condition(*node.children[0]) || condition(*node.children[1]);
      case Kind::kIn: return is_in(node);
      case Kind::kHas: return !is_missing(evaluate(*node.children[0]));
      case Kind::kDefault: {
        const auto value = evaluate(*node.children[0]);
        return is_missing(value) ? evaluate(*node.children[1]) : value;
      }
      case Kind::kMatches: return matches(node);
      case Kind::kLength: return length(node);
      case Kind::kMax:
      case Kind::kMin:
      case Kind::kSum:
      case Kind::kMean: return reduce(node);
      case Kind::kCount:
      case Kind::kAny:
      case Kind::kAll: return test_elements(node);
      case Kind::kNegate:
      case Kind::kAdd:
      case Kind::kSubtract:
      case Kind::kMultiply:
      case Kind::kDivide: return arithmetic(node);
      default: return compare(node.kind, evaluate(*node.children[0]), evaluate(*node.children[1]), node.position);
    }
  }

  static Value literal(const ExpressionNode& node) {
    if (const auto* text = std::get_if<std::string>(&node.literal)) return std::string_view(*text);
    if (const auto* number = std::get_if<double>(&node.literal)) return *number;
    return std::get<bool>(node.literal);
  }

  // True if the names, joined by points, are the name of the field with the text.
  bool is_text(const std::vector<std::variant<std::string, size_t>>& steps) const {
    auto rest = subject_.text_field;
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto* name = std::get_if<std::string>(&steps[i]);
      if (!name || !rest.starts_with(*name)) return false;
      rest.remove_prefix(name->size());
      if (i + 1 == steps.size()) return rest.empty();
      if (!rest.starts_with('.')) return false;
      rest.remove_prefix(1);
    }
    return false;
  }

  Value path(const ExpressionNode& node) const {
    if (is_text(node.steps)) return subject_.text;
    const json* at = &subject_.document;
    for (const auto& step : node.steps) {
      if (const auto* name = std::get_if<std::string>(&step)) {
        if (!at->is_object()) return {};
        const auto found = at->find(*name);
        if (found == at->end()) return {};
        at = &*found;
      } else {
        const auto index = std::get<size_t>(step);
        if (!at->is_array() || index >= at->size()) return {};
        at = &(*at)[index];
      }
    }
    return value_of(*at);
  }

  // A missing value compares as false; values of different kinds are unequal and have no order.
  static bool compare(Kind comparison, const Value& a, const Value& b, size_t position) {
    if (is_missing(a) || is_missing(b)) return false;
    for (const auto* side : {&a, &b}) {
      if (std::holds_alternative<const json*>(*side)) {
        throw ExpressionError(position,
                              fmt::format("{} cannot be compared; use max(), any() or an index", kind_of(*side)));
      }
    }
    const bool by_equality = comparison == Kind::kEqual || comparison == Kind::kUnequal;
    if (a.index() != b.index()) {
      if (by_equality) return comparison == Kind::kUnequal;
      throw ExpressionError(position, fmt::format("{} cannot be compared with {}", kind_of(a), kind_of(b)));
    }
    if (const auto* number = std::get_if<double>(&a)) return compare_numbers(comparison, *number, std::get<double>(b));
    if (const auto* text = std::get_if<std::string_view>(&a)) {
      return compares(comparison, text->compare(std::get<std::string_view>(b)));
    }
    if (by_equality) return compares(comparison, std::get<bool>(a) == std::get<bool>(b) ? 0 : 1);
    throw ExpressionError(position, "true and false are in no order; use == or !=");
  }
  static bool compare_numbers(Kind comparison, double a, double b) {
    return compares(comparison, a < b   ? -1
                                : a > b ? 1
                                        : 0);  // neither is NaN: JSON has none, and arithmetic turns it into a missing
                                               // value
  }

  bool is_in(const ExpressionNode& node) const {
    const auto value = evaluate(*node.children[0]);
    return std::any_of(node.children.begin() + 1, node.children.end(), [&](const auto& choice) {
      return compare(Kind::kEqual, value, literal(*choice), node.position);
    });
  }

  bool matches(const ExpressionNode& node) const {
    const auto value = evaluate(*node.children[0]);
    if (is_missing(value)) return false;
    const auto* text = std::get_if<std::string_view>(&value);
    if (!text)
      throw ExpressionError(node.position, fmt::format("matches() takes a string, this is {}", kind_of(value)));
    return matches_wildcard(std::get<std::string>(node.children[1]->literal), *text);
  }

  Value arithmetic(const ExpressionNode& node) const {
    double operands[2] = {0, 0};
    for (size_t i = 0; i < node.children.size(); ++i) {
      const auto value = evaluate(*node.children[i]);
      if (is_missing(value)) return {};
      const auto* number = std::get_if<double>(&value);
      if (!number) {
        throw ExpressionError(node.children[i]->position,
                              fmt::format("this is {}, a number is needed", kind_of(value)));
      }
      operands[i] = *number;
    }
    const auto [a, b] = operands;
    const double result = node.kind == Kind::kNegate     ? -a
                          : node.kind == Kind::kAdd      ? a + b
                          : node.kind == Kind::kSubtract ? a - b
                          : node.kind == Kind::kMultiply ? a * b
                                                         : a / b;
    if (!std::isfinite(result)) return {};
    return result;
  }

  // ---- Lists -------------------------------------------------------------------------------------------------------

  [[noreturn]] static void complain_of_element(const ExpressionNode& node, size_t index) {
    throw ExpressionError(
        node.children[0]->position,
        fmt::format("element {} of the list is neither a number nor a span [start, end, score]", index));
  }

  // Returns the number itself, or the span's score; none if that is null.
  static std::optional<double> score(const ExpressionNode& node, const json& element, size_t index) {
    const json* number = &element;
    if (element.is_array()) {
      if (element.size() < 3) complain_of_element(node, index);
      number = &element[2];
    }
    if (number->is_null()) return std::nullopt;
    if (!number->is_number()) complain_of_element(node, index);
    return number->get<double>();
  }

  // Calls `use` with each element's score; returns false if there is no list.
  template <class Use>
  bool for_each_score(const ExpressionNode& node, Use&& use) const {
    const auto value = evaluate(*node.children[0]);
    if (is_missing(value)) return false;
    if (const auto* number = std::get_if<double>(&value)) {
      use(std::optional<double>(*number));
      return true;
    }
    const auto* list = std::get_if<const json*>(&value);
    if (!list || !(*list)->is_array()) {
      throw ExpressionError(node.children[0]->position, fmt::format("this is {}, a list is needed", kind_of(value)));
    }
    for (size_t i = 0; i < (*list)->size(); ++i) use(score(node, (**list)[i], i));
    return true;
  }

  Value reduce(const ExpressionNode& node) const {
    double sum = 0, least = INFINITY, most = -INFINITY;
    int64_t count = 0;
    for_each_score(node, [&](std::optional<double> score) {
      if (!score) return;
      ++count;
      sum += *score;
      least = std::min(least, *score);
      most = std::max(most, *score);
    });
    if (node.kind == Kind::kSum) return sum;
    if (count == 0) return {};
    return node.kind == Kind::kMax ? most : node.kind == Kind::kMin ? least : sum / static_cast<double>(count);
  }

  Value test_elements(const ExpressionNode& node) const {
    const bool tested = node.comparison != Kind::kLiteral;
    const Value right = tested ? evaluate(*node.children[1]) : Value();
    int64_t total = 0, hits = 0;
    for_each_score(node, [&](std::optional<double> score) {
      ++total;
      const Value left = score ? Value(*score) : Value();
      if (!tested || compare(node.comparison, left, right, node.position)) ++hits;
    });
    if (node.kind == Kind::kCount) return static_cast<double>(hits);
    return node.kind == Kind::kAny ? hits > 0 : hits == total;
  }

  // Returns the length in characters of a string, or of the text that spans cover.
  Value length(const ExpressionNode& node) const {
    const auto value = evaluate(*node.children[0]);
    if (is_missing(value)) return 0.0;
    if (const auto* text = std::get_if<std::string_view>(&value)) return static_cast<double>(num_characters(*text));
    const auto* list = std::get_if<const json*>(&value);
    if (!list || !(*list)->is_array()) {
      throw ExpressionError(node.children[0]->position,
                            fmt::format("len() takes a string or a list of spans, this is {}", kind_of(value)));
    }
    double sum = 0;
    for (size_t i = 0; i < (*list)->size(); ++i) {
      const auto& span = (**list)[i];
      if (!span.is_array() || span.size() < 2 || !span[0].is_number() || !span[1].is_number()) {
        throw ExpressionError(
            node.children[0]->position,
            fmt::format(
                "element {} of the list is not a span [start, end, score]; count() gives the number of elements", i));
      }
      sum += span[1].get<double>() - span[0].get<double>();
    }
    return sum;
  }

  const ExpressionSubject& subject_;
};

}  // namespace

Expression::Expression() = default;
Expression::Expression(Expression&&) noexcept = default;
Expression::~Expression() = default;

bool Expression::holds(const ExpressionSubject& subject) const { return Evaluation(subject).condition(*root_); }

}  // namespace athanor::inline documents
