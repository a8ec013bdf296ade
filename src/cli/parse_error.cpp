#include "cli/parse_error.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/text.h"

namespace athanor::inline cli {
namespace {

constexpr const char* kText = "a text";

std::string unknown_option(const CLI::App& command, const std::vector<std::string>& words) {
  std::vector<std::string> known;
  for (const auto* option : command.get_options()) {
    for (const auto& name : option->get_lnames()) known.push_back("--" + name);
  }
  for (const auto& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (name == "--") break;  // what follows are no options
    if (!name.starts_with("--") || std::ranges::find(known, name) != known.end()) continue;
    // "--optimizer.lr=1e-3", as other systems take it.
    const bool is_field = name.find('.') != name.npos && std::ranges::find(known, "--set") != known.end();
    if (is_field)
      return fmt::format("unknown option {}; a field of the configuration is set by --set {}{}", name, word.substr(2),
                         word == name ? "=…" : "");
    return fmt::format("unknown option {}{}", name, did_you_mean(name, known));
  }
  return "";
}

// Returns what stands between the first `open` and the next `close`.
std::optional<std::string> between(const std::string& text, char open, char close) {
  const size_t begin = text.find(open), end = text.find(close, begin == text.npos ? 0 : begin);
  if (begin == text.npos || end == text.npos) return std::nullopt;
  return text.substr(begin + 1, end - begin - 1);
}

// "1 - 1000" as "from 1 to 1000".
std::string shown_range(std::string range) {
  const size_t dash = range.find(" - ");
  return dash == range.npos ? range : fmt::format(" from {} to {}", range.substr(0, dash), range.substr(dash + 3));
}

std::string one_of(const std::string& choices, char separator) {
  std::string names = "one of ";
  for (const char c : choices) names += c == separator ? ", " : std::string(1, c);
  return names;
}

// Returns what an option takes, in words. CLI11 knows it as "INT:INT in [1 - 1000]", "TEXT:{steps,tokens}".
std::string what_it_takes(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (const auto choices = between(type, '{', '}')) return one_of(*choices, ',');
  const auto range = between(type, '[', ']');
  const std::string bounds = range ? shown_range(*range) : "";
  if (type.starts_with("INT")) return "an integer" + bounds;
  if (type.starts_with("UINT")) return "an integer" + (range ? bounds : " of 0 or more");
  if (type.starts_with("FLOAT")) return "a number" + bounds;
  if (type.starts_with("SIZE")) return "a size such as 256M, 4G or a number of bytes";
  if (type.empty()) return "no value, or true or false";
  if (type.starts_with("TEXT")) return kText;
  if (type.find('|') != type.npos) return one_of(type, '|');
  return type;
}

// The beginning of the option's help, for a text of which nothing else is known.
std::string purpose_of(const CLI::Option& option) {
  std::string help = option.get_description();
  for (const char* end : {", e.g.", " (default", ";", ": ", ". "}) help.resize(std::min(help.size(), help.find(end)));
  const auto is_upper = [&](size_t i) { return i < help.size() && std::isupper(static_cast<unsigned char>(help[i])); };
  if (is_upper(0) && !is_upper(1)) help[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(help[0])));
  return help;
}

// Returns the value as it was typed; CLI11 may have changed its own copy.
std::string value_given(const CLI::Option& option, const std::vector<std::string>& words) {
  const std::string name = option.get_name();
  for (size_t i = words.size(); i-- > 0;) {
    if (words[i].starts_with(name + "=")) return words[i].substr(name.size() + 1);
    if (words[i] == name && i + 1 < words.size()) return words[i + 1];
  }
  return join(option.results());
}

bool is_digits(const std::string& text) { return !text.empty() && text.find_first_not_of("0123456789") == text.npos; }

// Returns the option that CLI11's message begins with, which may have no name in it.
const CLI::Option* option_of(const CLI::App& command, const std::string& message) {
  for (const auto* option : command.get_options()) {
    const std::string name = option->get_name();
    for (const char* before : {"", "Could not convert: "}) {
      const std::string start = before + name;
      if (!name.empty() && message.starts_with(start) &&
          (message.substr(start.size(), 1) == ":" || message.substr(start.size(), 2) == " ="))
        return option;
    }
  }
  return nullptr;
}

// Replaces CLI11's words, which name types of C++, by what the option takes and what it got.
std::string in_plain_words(const CLI::App& command, const CLI::Error& error, const std::vector<std::string>& words) {
  const std::string message = error.what();
  const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
  if (code == CLI::ExitCodes::ExtrasError) {
    const size_t colon = message.find(": ");
    return fmt::format("unexpected argument {}", colon == message.npos ? message : message.substr(colon + 2));
  }
  const CLI::Option* option = option_of(command, message);
  const bool is_plain = message.find("expected ") != message.npos && message.find("without a sign") == message.npos;
  if (!option || is_plain) return message;
  const std::string name = option->get_name();
  if (code == CLI::ExitCodes::ArgumentMismatch) {
    if (option->count() > 1) return fmt::format("{} is given {} times; give it once", name, option->count());
    const std::string takes = what_it_takes(*option);
    return fmt::format("{} needs a value: {}", name, takes == kText ? purpose_of(*option) : takes);
  }
  if (code != CLI::ExitCodes::ConversionError && code != CLI::ExitCodes::ValidationError) return message;
  const std::string value = value_given(*option, words), takes = what_it_takes(*option);
  const bool is_large = is_digits(value) && takes.find(" to ") == takes.npos;
  return fmt::format("{}: expected {}, got {}{}", name, takes, value, is_large ? ", which is too large" : "");
}

}  // namespace

std::string describe_parse_error(const CLI::App& app, const CLI::Error& error, const std::vector<std::string>& words) {
  std::string name = "athanor";
  const CLI::App* command = &app;
  for (auto chosen = app.get_subcommands(); !chosen.empty(); chosen = command->get_subcommands()) {
    command = chosen.front();
    name += " " + command->get_name();
  }
  const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
  const bool may_be_unknown = code == CLI::ExitCodes::RequiredError || code == CLI::ExitCodes::ExtrasError;
  std::string what = may_be_unknown ? unknown_option(*command, words) : "";
  if (what.empty()) what = in_plain_words(*command, error, words);
  return fmt::format("{0}: {1}; see {0} --help\n", name, what);
}

}  // namespace athanor::inline cli
