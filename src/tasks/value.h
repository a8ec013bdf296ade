#pragma once
// The values of templates: those of Python, as far as rows of data sets and lm_eval's templates need them.
//
// Values cannot be changed, except the attributes of a namespace. What Python makes lazily (the results of map and
// select) is a sequence here that may be read once, as in Python; reading it again, which Python answers with nothing,
// is refused.

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace athanor::tasks {

/// What Python or Jinja would raise, or an operation that this form does not have. The evaluator of templates adds the
/// place (template_nodes.h).
class PythonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Value;
using Items = std::vector<Value>;

struct Sequence {
  enum class Kind { kList, kTuple, kRange, kView, kIterator };
  Kind kind;
  Items items;
  mutable bool consumed = false;  ///< true if it is an iterator that was read
};

/// A dictionary in the order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> members;
  /// Returns null if there is no such key.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// Replaces the value of a key, or adds the key at the end. @throws PythonError for a key that has no hash.
  void set(Value key, Value value);
};

/// Jinja's namespace() and loop: attributes only.
struct Namespace {
  std::string type;
  std::map<std::string, Value> attributes;
};

class Value {
 public:
  Value() = default;  ///< None
  /// A name or member that does not exist. Every use of it throws PythonError(`what`).
  static Value undefined(std::string what);
  static Value of_bool(bool value) { return Value(Data(value)); }
  static Value of_int(int64_t value) { return Value(Data(value)); }
  static Value of_float(double value) { return Value(Data(value)); }
  static Value of_text(std::string value) { return Value(Data(std::make_shared<const std::string>(std::move(value)))); }
  static Value of_sequence(Sequence::Kind kind, Items items);
  static Value of_list(Items items) { return of_sequence(Sequence::Kind::kList, std::move(items)); }
  static Value of_tuple(Items items) { return of_sequence(Sequence::Kind::kTuple, std::move(items)); }
  static Value of_dict(Dict dict);
  static Value of_namespace(Namespace attributes);
  /// @throws PythonError for an integer outside of 64 bits with a sign.
  static Value of_json(const nlohmann::ordered_json& json);

  bool is_none() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_undefined() const { return std::holds_alternative<std::shared_ptr<const Undefined>>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }  ///< not a bool
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_integer() const { return is_bool() || is_int(); }  ///< isinstance(value, int)
  bool is_number() const { return is_integer() || is_float(); }
  bool is_text() const { return std::holds_alternative<std::shared_ptr<const std::string>>(data_); }
  bool is_sequence() const { return std::holds_alternative<std::shared_ptr<const Sequence>>(data_); }
  bool is_sequence(Sequence::Kind kind) const { return is_sequence() && sequence().kind == kind; }
  bool is_list() const { return is_sequence(Sequence::Kind::kList); }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_namespace() const { return std::holds_alternative<std::shared_ptr<Namespace>>(data_); }

  int64_t integer() const { return is_bool() ? std::get<bool>(data_) : std::get<int64_t>(data_); }
  double number() const { return is_float() ? std::get<double>(data_) : static_cast<double>(integer()); }
  bool boolean() const { return std::get<bool>(data_); }
  const std::string& text() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  const Sequence& sequence() const { return *std::get<std::shared_ptr<const Sequence>>(data_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Namespace& attributes() const { return *std::get<std::shared_ptr<Namespace>>(data_); }

  /// Throws if this is undefined.
  const Value& defined() const;
  /// Python's name of the type: "str", "int", "list", "NoneType".
  std::string_view type_name() const;

 private:
  struct Undefined {
    std::string what;
  };
  using Data = std::variant<std::monostate, std::shared_ptr<const Undefined>, bool, int64_t, double,
                            std::shared_ptr<const std::string>, std::shared_ptr<const Sequence>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Namespace>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  Data data_;
};

/// Python's bool(value). @throws PythonError for what is undefined, and for what this form cannot decide.
bool truth(const Value& value);

/// Python's `==`: numbers of all types by value, lists and tuples element by element, and a list is no tuple.
bool equal(const Value& left, const Value& right);

/// Python's order: negative, 0 or positive. @throws PythonError for types that Python does not order. A NaN, which has
/// no place, gives none.
std::optional<int> order(const Value& left, const Value& right);

/// Returns what iter(value) gives: characters, elements, keys. @throws PythonError for what cannot be iterated.
Items iterate(const Value& value);

/// Python's len(value).
int64_t length(const Value& value);

/// The value as JSON: tuples become arrays. @throws PythonError for what JSON does not have.
nlohmann::ordered_json to_json(const Value& value);

}  // namespace athanor::tasks
