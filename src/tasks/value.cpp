#include "tasks/value.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "tasks/python_text.h"

namespace athanor::tasks {
namespace {

bool has_hash(const Value& value) {
  if (value.is_sequence(Sequence::Kind::kTuple)) {
    for (const auto& item : value.sequence().items)
      if (!has_hash(item)) return false;
    return true;
  }
  return value.is_none() || value.is_number() || value.is_text();
}

int sign_of(bool less, bool more) { return more - less; }

// Python compares an int with a float exactly; a conversion of a large int to double would round.
std::optional<int> order_of_numbers(const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer())
    return sign_of(left.integer() < right.integer(), left.integer() > right.integer());
  const auto a = left.is_float() ? static_cast<long double>(left.number()) : static_cast<long double>(left.integer());
  const auto b =
      right.is_float() ? static_cast<long double>(right.number()) : static_cast<long double>(right.integer());
  static_assert(std::numeric_limits<long double>::digits >= 63, "an int64 has to fit");
  if (std::isnan(a) || std::isnan(b)) return std::nullopt;
  return sign_of(a<b, a> b);
}

bool equal_dicts(const Dict& left, const Dict& right) {
  if (left.members.size() != right.members.size()) return false;
  for (const auto& [key, value] : left.members) {
    const Value* other = right.find(key);
    if (!other || !equal(value, *other)) return false;
  }
  return true;
}

bool equal_items(const Items& left, const Items& right) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i)
    if (!equal(left[i], right[i])) return false;
  return true;
}

}  // namespace

const Value* Dict::find(const Value& key) const {
  if (!has_hash(key)) throw PythonError(fmt::format("a {} cannot be a key", key.type_name()));
  for (const auto& [name, value] : members)
    if (equal(name, key)) return &value;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : members)
    if (name.is_text() && name.text() == key) return &value;
  return nullptr;
}

void Dict::set(Value key, Value value) {
  if (!has_hash(key)) throw PythonError(fmt::format("a {} cannot be a key", key.type_name()));
  for (auto& [name, old] : members) {
    if (equal(name, key)) {
      old = std::move(value);
      return;
    }
  }
  members.emplace_back(std::move(key), std::move(value));
}

Value Value::undefined(std::string what) {
  return Value(Data(std::make_shared<const Undefined>(Undefined{std::move(what)})));
}

Value Value::of_sequence(Sequence::Kind kind, Items items) {
  return Value(Data(std::make_shared<const Sequence>(Sequence{kind, std::move(items)})));
}

Value Value::of_dict(Dict dict) { return Value(Data(std::make_shared<const Dict>(std::move(dict)))); }

Value Value::of_namespace(Namespace attributes) {
  return Value(Data(std::make_shared<Namespace>(std::move(attributes))));
}

Value Value::of_json(const nlohmann::ordered_json& json) {
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean: return of_bool(json.get<bool>());
    case Type::number_integer: return of_int(json.get<int64_t>());
    case Type::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        throw PythonError(fmt::format("the integer {} needs more than 64 bits", number));
      return of_int(static_cast<int64_t>(number));
    }
    case Type::number_float: return of_float(json.get<double>());
    case Type::string: return of_text(json.get_ref<const std::string&>());
    case Type::array: {
      Items items;
      items.reserve(json.size());
      for (const auto& element : json) items.push_back(of_json(element));
      return of_list(std::move(items));
    }
    case Type::object: {
      Dict dict;
      dict.members.reserve(json.size());
      for (const auto& [name, value] : json.items()) dict.members.emplace_back(of_text(name), of_json(value));
      return of_dict(std::move(dict));
    }
    default: return {};
  }
}

const Value& Value::defined() const {
  if (is_undefined()) throw PythonError(std::get<std::shared_ptr<const Undefined>>(data_)->what);
  return *this;
}

std::string_view Value::type_name() const {
  if (is_none()) return "NoneType";
  if (is_undefined()) return "undefined value";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_text()) return "str";
  if (is_dict()) return "dict";
  if (is_namespace()) return attributes().type;
  switch (sequence().kind) {
    case Sequence::Kind::kList: return "list";
    case Sequence::Kind::kTuple: return "tuple";
    case Sequence::Kind::kRange: return "range";
    case Sequence::Kind::kView: return "view of a dict";
    case Sequence::Kind::kIterator: break;
  }
  return "generator";
}

bool truth(const Value& value) {
  value.defined();
  if (value.is_none()) return false;
  if (value.is_integer()) return value.integer() != 0;
  if (value.is_float()) return value.number() != 0;
  if (value.is_text()) return !value.text().empty();
  if (value.is_dict()) return !value.dict().members.empty();
  if (value.is_namespace() || value.is_sequence(Sequence::Kind::kIterator)) return true;
  return !value.sequence().items.empty();
}

bool equal(const Value& left, const Value& right) {
  left.defined();
  right.defined();
  if (left.is_number() && right.is_number()) return order_of_numbers(left, right) == 0;
  if (left.is_text() && right.is_text()) return left.text() == right.text();
  if (left.is_dict() && right.is_dict()) return equal_dicts(left.dict(), right.dict());
  if (left.is_sequence() && right.is_sequence()) {
    const auto kind = left.sequence().kind;
    if (&left.sequence() == &right.sequence()) return true;  // Python looks at the identity first, too
    if (kind != right.sequence().kind) return false;
    if (kind == Sequence::Kind::kView || kind == Sequence::Kind::kIterator)
      throw PythonError(fmt::format("this form does not compare a {}; turn it into a list first", left.type_name()));
    return equal_items(left.sequence().items, right.sequence().items);
  }
  if (left.is_namespace() || right.is_namespace())
    throw PythonError(fmt::format("this form does not compare a {} with a {}", left.type_name(), right.type_name()));
  return left.is_none() && right.is_none();
}

std::optional<int> order(const Value& left, const Value& right) {
  left.defined();
  right.defined();
  if (left.is_number() && right.is_number()) return order_of_numbers(left, right);
  if (left.is_text() && right.is_text()) {
    const int result = left.text().compare(right.text());  // in UTF-8, bytes have the order of the code points
    return sign_of(result<0, result> 0);
  }
  const bool lists = left.is_list() && right.is_list();
  const bool tuples = left.is_sequence(Sequence::Kind::kTuple) && right.is_sequence(Sequence::Kind::kTuple);
  if (!lists && !tuples)
    throw PythonError(fmt::format("a {} and a {} have no order", left.type_name(), right.type_name()));
  const auto &a = left.sequence().items, &b = right.sequence().items;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (!equal(a[i], b[i])) return order(a[i], b[i]);
  return sign_of(a.size() < b.size(), a.size() > b.size());
}

Items iterate(const Value& value) {
  value.defined();
  if (value.is_sequence()) {
    const auto& sequence = value.sequence();
    if (sequence.kind == Sequence::Kind::kIterator) {
      if (sequence.consumed)
        throw PythonError(
            "the result of a filter such as map is read a second time, where Python finds nothing; add |list");
      sequence.consumed = true;
    }
    return sequence.items;
  }
  Items items;
  if (value.is_text()) {
    for (const auto character : characters(value.text())) items.push_back(Value::of_text(std::string(character)));
  } else if (value.is_dict()) {
    for (const auto& [key, member] : value.dict().members) items.push_back(key);
  } else {
    throw PythonError(fmt::format("a {} has no elements", value.type_name()));
  }
  return items;
}

int64_t length(const Value& value) {
  value.defined();
  if (value.is_text()) return num_characters(value.text());
  if (value.is_dict()) return static_cast<int64_t>(value.dict().members.size());
  if (value.is_sequence() && value.sequence().kind != Sequence::Kind::kIterator)
    return static_cast<int64_t>(value.sequence().items.size());
  throw PythonError(fmt::format("a {} has no length", value.type_name()));
}

nlohmann::ordered_json to_json(const Value& value) {
  value.defined();
  if (value.is_none()) return nullptr;
  if (value.is_bool()) return value.boolean();
  if (value.is_int()) return value.integer();
  if (value.is_float()) return value.number();
  if (value.is_text()) return value.text();
  if (value.is_dict()) {
    auto object = nlohmann::ordered_json::object();
    for (const auto& [key, member] : value.dict().members) {
      if (!key.is_text()) throw PythonError(fmt::format("a key that is a {} is no JSON", key.type_name()));
      object[key.text()] = to_json(member);
    }
    return object;
  }
  if (value.is_list() || value.is_sequence(Sequence::Kind::kTuple)) {
    auto array = nlohmann::ordered_json::array();
    for (const auto& item : value.sequence().items) array.push_back(to_json(item));
    return array;
  }
  throw PythonError(fmt::format("a {} is no JSON", value.type_name()));
}

}  // namespace athanor::tasks
