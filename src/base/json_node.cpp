#include "base/json_node.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace athanor {
namespace {

bool is_plain(const std::string& key) {
  return !key.empty() &&
         std::all_of(key.begin(), key.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

}  // namespace

std::string JsonNode::located(const std::string& message) const {
  return path_.empty() ? fmt::format("{}: {}", *file_, message) : fmt::format("{}: {}: {}", *file_, path_, message);
}

std::string JsonNode::child_path(const std::string& key) const {
  if (!is_plain(key)) return fmt::format("{}[\"{}\"]", path_, key);
  return path_.empty() ? key : path_ + "." + key;
}

bool JsonNode::is_null() const { return value_->is_null(); }
bool JsonNode::is_string() const { return value_->is_string(); }
bool JsonNode::is_array() const { return value_->is_array(); }

JsonNode JsonNode::member(const nlohmann::json& value, const std::string& key) const {
  return {value, *file_, child_path(key)};
}

JsonNode JsonNode::element(const nlohmann::json& value, size_t index) const {
  return {value, *file_, fmt::format("{}[{}]", path_, index)};
}

void JsonNode::must_be_object() const {
  if (!value_->is_object()) complain("expected an object, found {}", value_->type_name());
}

void JsonNode::must_be_array() const {
  if (!value_->is_array()) complain("expected an array, found {}", value_->type_name());
}

JsonNode JsonNode::at(const std::string& key) const {
  must_be_object();
  const auto found = value_->find(key);
  if (found == value_->end()) complain("lacks \"{}\"", key);
  return member(*found, key);
}

std::optional<JsonNode> JsonNode::find(const std::string& key) const {
  must_be_object();
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return member(*found, key);
}

std::vector<JsonNode> JsonNode::elements() const {
  must_be_array();
  std::vector<JsonNode> nodes;
  nodes.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) nodes.push_back(element((*value_)[i], i));
  return nodes;
}

const std::string& JsonNode::as_string() const {
  if (!value_->is_string()) complain("expected a string, found {}", value_->type_name());
  return value_->get_ref<const std::string&>();
}

bool JsonNode::as_bool() const {
  if (!value_->is_boolean()) complain("expected true or false, found {}", value_->type_name());
  return value_->get<bool>();
}

uint64_t JsonNode::as_unsigned(uint64_t limit) const {
  if (!value_->is_number_unsigned())
    complain("expected a whole number from 0 on, found {}",
             value_->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 40));
  const auto number = value_->get<uint64_t>();
  if (number >= limit) complain("{} is too large; expected at most {}", number, limit - 1);
  return number;
}

std::string JsonNode::string_or(const std::string& key, const std::string& otherwise) const {
  const auto node = find(key);
  return node ? node->as_string() : otherwise;
}

bool JsonNode::bool_or(const std::string& key, bool otherwise) const {
  const auto node = find(key);
  return node ? node->as_bool() : otherwise;
}

}  // namespace athanor
