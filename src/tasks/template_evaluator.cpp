#include "tasks/template_evaluator.h"

#include <fmt/core.h>

#include "base/text.h"
#include "tasks/python_repr.h"
#include "tasks/template_operators.h"

namespace athanor::tasks {
namespace {

using Node = Expression::Kind;

// A template that makes more steps than this is a mistake: one for a document takes a few hundred.
constexpr int64_t kMaxSteps = 1'000'000;

bool is_tojson(const Expression& expression) { return expression.kind == Node::kFilter && expression.name == "tojson"; }

std::string names_of(const nlohmann::ordered_json& row) {
  std::vector<std::string> names;
  for (const auto& [name, value] : row.items()) names.push_back(printable(name));
  return names.empty() ? "the row is empty" : "the row has " + join_first(names, 20);
}

}  // namespace

void TemplateEvaluator::count_step(size_t offset) {
  if (++steps_ > kMaxSteps) throw TemplateError(fmt::format("more than {} steps", kMaxSteps), offset);
}

void TemplateEvaluator::run(const Statements& statements, std::string& out) {
  for (const auto& statement : statements) {
    count_step(statement.offset);
    try {
      run(statement, out);
      check_text_size(out.size());
    } catch (const PythonError& error) {
      throw TemplateError(error.what(), statement.offset);
    }
  }
}

void TemplateEvaluator::run(const Statement& statement, std::string& out) {
  switch (statement.kind) {
    case Statement::Kind::kText: out += statement.text; return;
    case Statement::Kind::kOutput: out += print(*statement.expression); return;
    case Statement::Kind::kFor: return run_loop(statement, out);
    case Statement::Kind::kIf:
      for (const auto& branch : statement.branches) {
        bool taken = true;
        try {
          taken = !branch.condition || truth(evaluate(*branch.condition));
        } catch (const PythonError& error) {
          throw TemplateError(error.what(), branch.condition->offset);
        }
        if (taken) return run(branch.body, out);
      }
      return;
    case Statement::Kind::kSet: return assign(statement.target, evaluate(*statement.expression), statement.offset);
    case Statement::Kind::kSetText: {
      std::string text;
      scopes_.emplace_back();  // what is set inside of the block stays there
      run(statement.body, text);
      scopes_.pop_back();
      return assign(statement.target, Value::of_text(std::move(text)), statement.offset);
    }
  }
}

void TemplateEvaluator::run_loop(const Statement& statement, std::string& out) {
  Items items;
  try {
    items = iterate(evaluate(*statement.expression));
    if (statement.filter) {
      Items kept;
      for (const auto& item : items) {
        count_step(statement.offset);
        scopes_.emplace_back();
        assign(statement.target, item, statement.offset);
        if (truth(evaluate(*statement.filter))) kept.push_back(item);
        scopes_.pop_back();
      }
      items = std::move(kept);
    }
  } catch (const PythonError& error) {
    throw TemplateError(error.what(), statement.expression->offset);
  }
  const auto size = static_cast<int64_t>(items.size());
  for (int64_t i = 0; i < size; ++i) {
    count_step(statement.offset);
    const auto neighbour = [&](int64_t at, const char* name) {
      return at < 0 || at >= size ? Value::undefined(fmt::format("there is no loop.{}", name))
                                  : items[static_cast<size_t>(at)];
    };
    Namespace loop{"loop", {}};
    loop.attributes = {{"index", Value::of_int(i + 1)},           {"index0", Value::of_int(i)},
                       {"revindex", Value::of_int(size - i)},     {"revindex0", Value::of_int(size - i - 1)},
                       {"first", Value::of_bool(i == 0)},         {"last", Value::of_bool(i + 1 == size)},
                       {"length", Value::of_int(size)},           {"previtem", neighbour(i - 1, "previtem")},
                       {"nextitem", neighbour(i + 1, "nextitem")}};
    scopes_.emplace_back();
    scopes_.back()["loop"] = Value::of_namespace(std::move(loop));
    assign(statement.target, items[static_cast<size_t>(i)], statement.offset);
    run(statement.body, out);
    scopes_.pop_back();
  }
  if (size == 0) {
    scopes_.emplace_back();
    run(statement.otherwise, out);
    scopes_.pop_back();
  }
}

void TemplateEvaluator::assign(const Target& target, const Value& value, size_t offset) {
  if (target.parts.empty()) {
    if (target.attribute.empty()) {
      scopes_.back()[target.name] = value;
      return;
    }
    const Value object = look_up(target.name);
    if (!object.is_namespace() || object.attributes().type != "namespace")
      throw TemplateError(
          fmt::format("{} is no namespace, so {}.{} cannot be set", target.name, target.name, target.attribute),
          offset);
    object.attributes().attributes[target.attribute] = value;
    return;
  }
  Items items;
  try {
    items = iterate(value);
  } catch (const PythonError& error) {
    throw TemplateError(error.what(), offset);
  }
  if (items.size() != target.parts.size())
    throw TemplateError(fmt::format("{} values for {} names", items.size(), target.parts.size()), offset);
  for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], offset);
}

bool TemplateEvaluator::is_shadowed(const std::string& name) const {
  for (const auto& scope : scopes_)
    if (scope.count(name)) return true;
  return row_.contains(name);
}

Value TemplateEvaluator::look_up(const std::string& name) const {
  for (size_t i = scopes_.size(); i-- > 0;) {
    const auto found = scopes_[i].find(name);
    if (found != scopes_[i].end()) return found->second;
  }
  const auto found = row_.find(name);
  if (found != row_.end()) return Value::of_json(*found);
  for (const char* function : {"range", "namespace", "dict", "lipsum", "cycler", "joiner"})
    if (name == function) throw PythonError(fmt::format("{} is a function; call it", name));
  std::vector<std::string> names;
  for (const auto& [known, value] : row_.items()) names.push_back(known);
  return Value::undefined(fmt::format("there is no \"{}\"{}; {}", name, did_you_mean(name, names), names_of(row_)));
}

// The error of an operation gets the place of the innermost expression in which it happened.
Value TemplateEvaluator::evaluate(const Expression& expression) {
  count_step(expression.offset);
  try {
    Value value = compute(expression);
    // Large values count as many steps.
    if (value.is_text()) steps_ += static_cast<int64_t>(value.text().size()) / 64;
    if (value.is_sequence()) steps_ += static_cast<int64_t>(value.sequence().items.size()) / 8;
    return value;
  } catch (const PythonError& error) {
    throw TemplateError(error.what(), expression.offset);
  }
}

// Jinja makes the result of tojson a text that escapes what is added to it, so it may only be printed or joined by ~.
std::string TemplateEvaluator::print(const Expression& expression) {
  count_step(expression.offset);
  try {
    if (expression.kind == Node::kConcat) {
      std::string joined;
      for (const auto& part : expression.parts) {
        joined += print(*part);
        check_text_size(joined.size());
      }
      return joined;
    }
    // Where no else is, Jinja prints nothing, whatever it does with other undefined values.
    if (expression.kind == Node::kCondition && !expression.parts[2] && !truth(evaluate(*expression.parts[0])))
      return "";
    if (is_tojson(expression)) {
      const Value value = evaluate(*expression.parts[0]);
      return apply_filter("tojson", value, evaluate_arguments(expression, "the filter tojson")).text();
    }
    return python_str(evaluate(expression));
  } catch (const PythonError& error) {
    throw TemplateError(error.what(), expression.offset);
  }
}

Arguments TemplateEvaluator::evaluate_arguments(const Expression& expression, std::string callee) {
  Arguments arguments{std::move(callee), {}, {}};
  for (size_t i = 1; i < expression.parts.size(); ++i) arguments.positional.push_back(evaluate(*expression.parts[i]));
  for (const auto& [name, value] : expression.keywords) {
    if (arguments.find(SIZE_MAX, name)) throw PythonError(fmt::format("the argument {} occurs twice", name));
    arguments.keywords.emplace_back(name, evaluate(*value));
  }
  return arguments;
}

Value TemplateEvaluator::compute(const Expression& expression) {
  const auto part = [&](size_t i) { return evaluate(*expression.parts[i]); };
  switch (expression.kind) {
    case Node::kConstant: return expression.constant;
    case Node::kName: return look_up(expression.name);
    case Node::kList:
    case Node::kTuple: {
      Items items;
      for (size_t i = 0; i < expression.parts.size(); ++i) items.push_back(part(i));
      return Value::of_sequence(expression.kind == Node::kList ? Sequence::Kind::kList : Sequence::Kind::kTuple,
                                std::move(items));
    }
    case Node::kDict: {
      Dict dict;
      for (size_t i = 0; i < expression.parts.size(); i += 2) {
        Value key = part(i).defined();
        dict.set(std::move(key), part(i + 1));
      }
      return Value::of_dict(std::move(dict));
    }
    case Node::kAttribute: return get_attribute(part(0), expression.name);
    case Node::kItem: {
      const Value object = part(0);
      return get_item(object, part(1));
    }
    case Node::kSlice: {
      const Value object = part(0);
      Value bounds[3];
      const Value* given[3] = {};
      for (size_t i = 0; i < 3; ++i) {
        if (!expression.parts[i + 1]) continue;
        bounds[i] = part(i + 1);
        given[i] = &bounds[i];
      }
      return get_slice(object, given[0], given[1], given[2]);
    }
    case Node::kCall: return compute_call(expression);
    case Node::kFilter: {
      if (is_tojson(expression)) throw PythonError("this form of tojson is only printed, or joined by ~");
      const Value value = part(0);
      return apply_filter(expression.name, value, evaluate_arguments(expression, "the filter " + expression.name));
    }
    case Node::kTest: {
      const Value value = part(0);
      return Value::of_bool(
          apply_test(expression.name, value, evaluate_arguments(expression, "the test " + expression.name)));
    }
    case Node::kNegative: return negate(part(0));
    case Node::kPositive: return positive(part(0));
    case Node::kNot: return Value::of_bool(!truth(part(0)));
    case Node::kBinary: {
      const Value left = part(0);
      return binary_operation(expression.name, left, part(1));
    }
    case Node::kConcat: {
      std::string joined;
      for (const auto& each : expression.parts) {
        joined += print(*each);
        check_text_size(joined.size());
      }
      return Value::of_text(std::move(joined));
    }
    case Node::kCompare: return Value::of_bool(compute_compare(expression));
    case Node::kAnd: {
      Value left = part(0);
      return truth(left) ? part(1) : left;
    }
    case Node::kOr: {
      Value left = part(0);
      return truth(left) ? left : part(1);
    }
    case Node::kCondition:
      if (truth(part(0))) return part(1);
      return expression.parts[2] ? part(2) : Value::undefined("the condition is false, and there is no else");
  }
  return {};
}

bool TemplateEvaluator::compute_compare(const Expression& expression) {
  Value left = evaluate(*expression.parts[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1]);
    if (!compare_values(expression.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value TemplateEvaluator::compute_call(const Expression& expression) {
  const Expression& callee = *expression.parts[0];
  if (callee.kind == Node::kName && !is_shadowed(callee.name))
    return compute_function(callee.name, evaluate_arguments(expression, callee.name));
  if (callee.kind != Node::kAttribute) throw PythonError("only methods and functions can be called");
  const Value object = evaluate(*callee.parts[0]);
  return call_method(object, callee.name, evaluate_arguments(expression, callee.name));
}

Value TemplateEvaluator::compute_function(const std::string& name, const Arguments& arguments) {
  if (name == "range") {
    arguments.check(1, 3);
    const bool only_end = arguments.positional.size() == 1;
    const int64_t begin = only_end ? 0 : arguments.int_or(0, "", 0), end = arguments.int_or(only_end ? 0 : 1, "", 0);
    const int64_t step = arguments.int_or(2, "", 1);
    if (step == 0) throw PythonError("the step of range is 0");
    Items items;
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
      if (items.size() >= static_cast<size_t>(kMaxTemplateItems)) throw PythonError("a range of too many numbers");
      items.push_back(Value::of_int(i));
    }
    return Value::of_sequence(Sequence::Kind::kRange, std::move(items));
  }
  if (name == "namespace" || name == "dict") {
    if (!arguments.positional.empty())
      throw PythonError(fmt::format("this form of {} takes only names with values", name));
    if (name == "namespace") {
      Namespace attributes{"namespace", {}};
      for (const auto& [key, value] : arguments.keywords) attributes.attributes[key] = value;
      return Value::of_namespace(std::move(attributes));
    }
    Dict dict;
    for (const auto& [key, value] : arguments.keywords) dict.set(Value::of_text(key), value);
    return Value::of_dict(std::move(dict));
  }
  throw PythonError(fmt::format("this form has no function {}{}; it has range, dict and namespace", name,
                                did_you_mean(name, {"range", "dict", "namespace"})));
}

}  // namespace athanor::tasks
