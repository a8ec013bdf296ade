#include "base/bounded_json.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"

namespace athanor {
namespace {

template <class Json>
constexpr bool kIsOrdered = std::is_same_v<Json, nlohmann::ordered_json>;

/// The parser's handler: builds one value from its events.
template <class Json>
class BoundedBuilder {
 public:
  explicit BoundedBuilder(JsonFault& fault) : fault_(fault) {}
  Json take() { return std::move(root_); }

  bool null() { return put(nullptr); }
  bool boolean(bool x) { return put(x); }
  bool number_integer(typename Json::number_integer_t x) { return put(x); }
  bool number_unsigned(typename Json::number_unsigned_t x) { return put(x); }
  bool number_float(typename Json::number_float_t x, const std::string& /*text*/) { return put(x); }
  bool string(std::string& x) { return put(std::move(x)); }
  bool binary(typename Json::binary_t& /*x*/) { return false; }
  bool start_object(size_t /*unknown*/) { return open(Json::object()); }
  bool start_array(size_t /*unknown*/) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    Open& object = open_.back();
    auto& members = object.value->template get_ref<typename Json::object_t&>();
    if constexpr (kIsOrdered<Json>) {
      const auto [at, is_new] = object.positions.emplace(name, members.size());
      if (is_new) static_cast<typename Json::object_t::Container&>(members).emplace_back(std::move(name), nullptr);
      member_ = &members.begin()[static_cast<std::ptrdiff_t>(at->second)].second;
    } else {
      member_ = &members[std::move(name)];
    }
    return true;
  }

  bool parse_error(size_t byte, const std::string& /*token*/, const nlohmann::detail::exception& error) {
    const bool is_number = dynamic_cast<const typename Json::out_of_range*>(&error) != nullptr;
    fault_ = is_number ? JsonFault{0, "a number is out of range"} : JsonFault{byte, json_error_reason(error.what())};
    return false;
  }

 private:
  struct Open {
    Json* value;                                             // none grows while a later one is open
    std::unordered_map<std::string, size_t> positions = {};  // where the members are, by name, if they are ordered
  };

  Json* place(Json x) {
    if (open_.empty()) return &(root_ = std::move(x));
    Json& inner = *open_.back().value;
    if (!inner.is_array()) return &(*member_ = std::move(x));
    inner.push_back(std::move(x));
    return &inner.back();
  }
  bool put(Json x) {
    place(std::move(x));
    return true;
  }
  bool open(Json empty) {
    if (open_.size() == kMaxJsonDepth) {
      fault_ = {0, fmt::format("nested deeper than {} levels", kMaxJsonDepth)};
      return false;
    }
    open_.push_back({place(std::move(empty))});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  JsonFault& fault_;
  Json root_;
  std::vector<Open> open_;
  Json* member_ = nullptr;  // the innermost object's; its value comes next
};

template <class Json>
Json read_bounded(std::string_view text, JsonFault* fault) {
  JsonFault unused;
  BoundedBuilder<Json> builder(fault ? *fault : unused);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) return Json(Json::value_t::discarded);
  return builder.take();
}

}  // namespace

nlohmann::json read_json(std::string_view text, JsonFault* fault) { return read_bounded<nlohmann::json>(text, fault); }

nlohmann::ordered_json read_ordered_json(std::string_view text, JsonFault* fault) {
  return read_bounded<nlohmann::ordered_json>(text, fault);
}

// The library's message is, for example, "[json.exception.parse_error.101] parse error at line 1, column 2: syntax
// error while parsing value - invalid literal; last read: 'ne'; expected '['".
std::string json_error_reason(std::string_view message) {
  for (const std::string_view before : {": ", " - "}) {
    if (const auto at = message.find(before); at != message.npos) message.remove_prefix(at + before.size());
  }
  message = message.substr(0, message.find("; expected"));
  return message == "unexpected end of input" ? "it ends too early" : std::string(message);
}

nlohmann::json parse_json(std::string_view text, const std::string& file) {
  // Versions of the library tell of an empty text in different words.
  ATHANOR_CHECK_DATA(text.find_first_not_of(" \t\r\n") != text.npos, "{}: an empty file; fetch or write the file again",
                     file);
  JsonFault fault;
  auto value = read_json(text, &fault);
  ATHANOR_CHECK_DATA(!value.is_discarded() || fault.byte > 0, "{}: {}; fetch or write the file again", file,
                     fault.reason);
  ATHANOR_CHECK_DATA(!value.is_discarded(), "{}: not JSON at byte {}: {}; fetch or write the file again", file,
                     fault.byte, fault.reason);
  return value;
}

}  // namespace athanor
