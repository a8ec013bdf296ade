#include "tasks/yaml_file.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "tasks/python_repr.h"

namespace athanor::tasks {
namespace {

using Json = nlohmann::ordered_json;

// Anchors may repeat each other many times; a task file has a few hundred values.
constexpr int kMaxYamlValues = 100'000, kMaxYamlDepth = 50;

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool only(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

std::string without_underscores(std::string_view text) {
  std::string out(text);
  std::erase(out, '_');
  return out;
}

// Integers of YAML 1.1 as PyYAML reads them, without those with colons.
std::optional<int64_t> read_yaml_int(std::string_view word) {
  const bool negative = word.starts_with('-');
  if (negative || word.starts_with('+')) word.remove_prefix(1);
  const auto parse = [&](std::string_view digits, int base) -> std::optional<int64_t> {
    const auto number = read_int(without_underscores(digits), base);
    return number ? std::optional(negative ? -*number : *number) : std::nullopt;
  };
  if (word == "0") return 0;
  if (word.starts_with("0b") && only(word.substr(2), "01_")) return parse(word.substr(2), 2);
  if (word.starts_with("0x") && only(word.substr(2), "0123456789abcdefABCDEF_")) return parse(word.substr(2), 16);
  if (word.starts_with("0") && only(word.substr(1), "01234567_")) return parse(word.substr(1), 8);
  if (only(word, "0123456789_") && word[0] != '0' && word[0] != '_') return parse(word, 10);
  return std::nullopt;
}

// Floats need a point in YAML 1.1, and a sign in the exponent.
std::optional<double> read_yaml_float(std::string_view word) {
  auto digits = word;
  if (digits.starts_with('-') || digits.starts_with('+')) digits.remove_prefix(1);
  if (is_one_of(digits, {".inf", ".Inf", ".INF"}))
    return (word[0] == '-' ? -1 : 1) * std::numeric_limits<double>::infinity();
  if (is_one_of(word, {".nan", ".NaN", ".NAN"})) return std::numeric_limits<double>::quiet_NaN();
  const size_t point = digits.find('.');
  if (point == std::string_view::npos || digits.size() < 2) return std::nullopt;
  const size_t e = digits.find_first_of("eE");
  const auto whole = digits.substr(0, point);
  const auto fraction = digits.substr(point + 1, e == std::string_view::npos ? e : e - point - 1);
  if (!whole.empty() && (!only(whole, "0123456789_") || whole[0] == '_')) return std::nullopt;
  if (whole.empty() ? !only(fraction, "0123456789_") || fraction[0] == '_'
                    : !fraction.empty() && !only(fraction, "0123456789_"))
    return std::nullopt;
  if (e != std::string_view::npos) {
    const auto exponent = digits.substr(e + 1);
    if (exponent.size() < 2 || (exponent[0] != '+' && exponent[0] != '-') || !only(exponent.substr(1), "0123456789"))
      return std::nullopt;
  }
  return read_float(without_underscores(word));
}

Json plain_scalar(const std::string& word) {
  if (is_one_of(word, {"", "~", "null", "Null", "NULL"})) return nullptr;
  if (is_one_of(word, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return true;
  if (is_one_of(word, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) return false;
  if (const auto number = read_yaml_int(word)) return *number;
  if (const auto number = read_yaml_float(word)) return *number;
  return word;
}

// yaml-cpp writes the escapes \_ (no-break space) and \N (next line) as the single bytes A0 and 85. In a file that is
// UTF-8 no character begins with these, so that each of them is such an escape.
std::string with_whole_escapes(const std::string& word) {
  std::string out;
  size_t begin = 0;
  while (const auto invalid = find_invalid_utf8(std::string_view(word).substr(begin))) {
    const size_t at = begin + *invalid;
    out += word.substr(begin, *invalid);
    out += '\xC2';
    out += word[at];
    begin = at + 1;
  }
  return out + word.substr(begin);
}

class YamlConverter {
 public:
  YamlConverter(const std::string& name, YamlDocument& document) : name_(name), document_(document) {}

  Json convert(const YAML::Node& node, const std::string& path, int depth) {
    if (++num_values_ > kMaxYamlValues || depth > kMaxYamlDepth) complain(node, "too many values or levels");
    const std::string tag = node.Tag();
    if (tag.starts_with("!") && tag.size() > 1) {
      if (!node.IsScalar()) complain(node, fmt::format("the tag {} is not known here", tag));
      return {{tag, node.Scalar()}};
    }
    switch (node.Type()) {
      case YAML::NodeType::Sequence: {
        auto array = Json::array();
        for (const auto& element : node) array.push_back(convert(element, path, depth + 1));
        return array;
      }
      case YAML::NodeType::Map: return convert_map(node, path, depth);
      case YAML::NodeType::Scalar: return convert_scalar(node, tag);
      default: return nullptr;
    }
  }

 private:
  [[noreturn]] void complain(const YAML::Node& node, const std::string& what) const {
    fail<ConfigError>("{}:{}: {}", name_, node.Mark().line + 1, what);
  }

  Json convert_scalar(const YAML::Node& node, const std::string& tag) const {
    const std::string word = with_whole_escapes(node.Scalar());
    try {
      return tag == "?" || tag.empty() ? plain_scalar(word) : Json(word);
    } catch (const PythonError& error) {
      complain(node, error.what());
    }
  }

  Json convert_map(const YAML::Node& node, const std::string& path, int depth) {
    auto object = Json::object();
    std::map<std::string, size_t> places;  // an ordered object would search all of its members at each
    for (const auto& member : node) {
      if (!member.first.IsScalar()) complain(node, "a key that is no word");
      const std::string key = with_whole_escapes(member.first.Scalar());
      const int line = member.first.Mark().line + 1;
      if (key == "<<") complain(member.first, "this form has no merge keys (<<); use include");
      const auto [place, is_new] = places.try_emplace(key, places.size());
      if (!is_new) {
        document_.repeated.push_back(fmt::format("{}:{}: the key {} is there before; this one counts, as in lm_eval",
                                                 name_, line, printable(key)));
      }
      const std::string inner = path.empty() ? key : path + "." + key;
      document_.lines[inner] = line;
      auto value = convert(member.second, inner, depth + 1);
      auto& members = static_cast<Json::object_t::Container&>(object.get_ref<Json::object_t&>());
      if (is_new) {
        members.emplace_back(key, std::move(value));
      } else {
        members[place->second].second = std::move(value);
      }
    }
    return object;
  }

  const std::string& name_;
  YamlDocument& document_;
  int num_values_ = 0;
};

}  // namespace

std::vector<YamlDocument> parse_yaml(const std::string& text, const std::string& name) {
  std::vector<YamlDocument> documents;
  if (const auto byte = find_invalid_utf8(text)) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(*byte), '\n');
    fail<ConfigError>("{}:{}: not UTF-8 at byte {} of the file; convert it to UTF-8", name, line, *byte + 1);
  }
  try {
    for (const auto& node : YAML::LoadAll(text)) {
      documents.emplace_back();
      documents.back().value = YamlConverter(name, documents.back()).convert(node, "", 0);
    }
  } catch (const YAML::Exception& error) {
    fail<ConfigError>("{}:{}: no YAML: {}", name, error.mark.line + 1, error.msg);
  }
  return documents;
}

std::vector<YamlDocument> read_yaml(const std::filesystem::path& file) {
  return parse_yaml(read_file(file), file.string());
}

}  // namespace athanor::tasks
