#include "launch/signatures.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "config/bounded_toml.h"

namespace athanor::launch {
namespace {

// The first words of an index: how escape sequences of terminals begin, which may stand inside any other word.
constexpr std::array<const char*, 2> kEscapes{"\x1b[", "\x1b]"};

template <class Value>
using Names = std::vector<std::pair<std::string, Value>>;

const Names<Tells>& names_of_tells() {
  static const Names<Tells> names{
      {"cause", Tells::kCause},       {"sign", Tells::kSign},         {"echo", Tells::kEcho},  {"ended", Tells::kEnded},
      {"progress", Tells::kProgress}, {"finished", Tells::kFinished}, {"exit", Tells::kExit},  {"place", Tells::kPlace},
      {"tag", Tells::kTag},           {"prefix", Tells::kPrefix},     {"block", Tells::kBlock}};
  return names;
}

const Names<HostPolicy>& names_of_policies() {
  static const Names<HostPolicy> names{{"at_fault", HostPolicy::kAtFault},
                                       {"suspect", HostPolicy::kSuspect},
                                       {"innocent", HostPolicy::kInnocent},
                                       {"reporter", HostPolicy::kReporter}};
  return names;
}

const std::vector<std::string>& known_keys() {
  static const std::vector<std::string> keys{"name",   "tells",   "cause",  "host", "has",  "pattern",
                                             "source", "example", "reason", "in",   "first"};
  return keys;
}

// What patterns write for the groups that classification knows.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kShortForms{{
    {"{host}", R"((?<host>[A-Za-z0-9](?:[\w.-]*\w)?))"},
    {"{hosts}", R"((?<host>[A-Za-z0-9](?:[\w.,\[\]-]*[\w\]])?))"},
    {"{other}", R"((?<other>[A-Za-z0-9](?:[\w.-]*\w)?))"},
    {"{address}", R"((?<address>\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}))"},
    {"{rank}", R"((?<rank>\d{1,9}))"},
    {"{node}", R"((?<node>\d{1,6}))"},
    {"{nid}", R"((?<nid>\d{1,6}))"},
    {"{step}", R"((?<step>\d{1,15}))"},
    {"{code}", R"((?<code>-?\d{1,4}))"},
}};

constexpr std::array<std::string_view, 8> kGroups{"host", "other", "address", "rank", "node", "nid", "step", "code"};

std::string with_long_forms(std::string pattern) {
  for (const auto& [form, meaning] : kShortForms) {
    for (size_t at = pattern.find(form); at != pattern.npos; at = pattern.find(form, at + meaning.size()))
      pattern.replace(at, form.size(), meaning);
  }
  return pattern;
}

// Returns what is wrong with a TOML text, without the library's words before it ("Error while parsing ...: ").
std::string reason_in(std::string_view message) {
  const size_t at = message.starts_with("Error while parsing ") ? message.find(": ") : message.npos;
  return printable(at == message.npos ? message : message.substr(at + 2));
}

// One [[signature]] of a file, with its place for messages.
class Entry {
 public:
  Entry(const toml::table& table, const std::string& file, size_t number) : table_(table) {
    place_ = fmt::format("{}: signature {}", file, number);
    if (const auto name = table["name"].value<std::string>())
      place_ = fmt::format("{}: signature {}", file, printable(*name));
  }

  template <class... Args>
  [[noreturn]] void complain(fmt::format_string<Args...> format, Args&&... args) const {
    throw ConfigError(place_ + ": " + fmt::vformat(format, fmt::make_format_args(args...)));
  }

  void refuse_unknown_keys() const {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (std::ranges::find(known_keys(), name) == known_keys().end())
        complain("unknown key {}{}; there are {}", printable(name), did_you_mean(name, known_keys()),
                 join(known_keys()));
    }
  }

  std::string text(const char* key, bool is_needed) const {
    const toml::node* node = table_.get(key);
    if (!node) {
      if (is_needed) complain("{} is missing", key);
      return "";
    }
    if (!node->is_string() || node->as_string()->get().empty()) complain("{} must be a text", key);
    return node->as_string()->get();
  }

  std::vector<std::string> texts(const char* key) const {
    const toml::node* node = table_.get(key);
    if (!node) complain("{} is missing: a text that every line which matches has, or a list of which it has one", key);
    if (const auto* one = node->as_string()) return {one->get()};
    std::vector<std::string> several;
    if (const auto* list = node->as_array())
      for (const toml::node& element : *list)
        if (element.is_string()) several.push_back(element.as_string()->get());
    const size_t num_given = node->as_array() ? node->as_array()->size() : 0;
    if (several.empty() || several.size() != num_given) complain("{} must be a text or a list of texts", key);
    return several;
  }

  bool flag(const char* key) const {
    const toml::node* node = table_.get(key);
    if (node && !node->is_boolean()) complain("{} must be true or false", key);
    return node && node->as_boolean()->get();
  }

  std::vector<std::string> texts_or_none(const char* key) const {
    return table_.contains(key) ? texts(key) : std::vector<std::string>();
  }

  template <class Value>
  Value choice(const char* key, const Names<Value>& names, Value otherwise) const {
    const std::string name = text(key, false);
    if (name.empty()) return otherwise;
    std::vector<std::string> known;
    for (const auto& [known_name, value] : names) {
      if (known_name == name) return value;
      known.push_back(known_name);
    }
    complain("unknown {} {}{}; there are {}", key, printable(name), did_you_mean(name, known), join(known));
  }

  Cause cause(Tells tells) const {
    const bool needs_one = tells == Tells::kCause || tells == Tells::kSign || tells == Tells::kEcho;
    const std::string kind = text("cause", needs_one);
    if (!needs_one && !kind.empty()) complain("cause is only for lines that tell a cause, a sign or an echo");
    if (tells == Tells::kEnded) return Cause::kCascade;
    if (!needs_one) return Cause::kUnknown;
    const auto found = cause_of_kind(kind);
    if (!found)
      complain("unknown cause {}{}; there are {}", printable(kind), did_you_mean(kind, all_kinds()), join(all_kinds()));
    return *found;
  }

  Pattern pattern() const {
    const std::string written = text("pattern", true);
    try {
      return Pattern(with_long_forms(written));
    } catch (const ConfigError& error) {
      complain("{}; in {}", std::string(error.what()), printable(written));
    }
  }

 private:
  const toml::table& table_;
  std::string place_;
};

bool begins(const Signature& signature, const std::string& block) {
  return signature.tells == Tells::kBlock && signature.name == block;
}

void check_groups(const Entry& entry, const Signature& signature) {
  for (const std::string& group : signature.pattern.group_names())
    if (std::ranges::find(kGroups, group) == kGroups.end())
      entry.complain("unknown group {} in the pattern; there are host, other, address, rank, node, nid, step and code",
                     group);
}

void check_words(const Entry& entry, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word.size() < 3 || word.find_first_of("\n\r\x1b") != word.npos)
      entry.complain("has: {} is not a text of at least three bytes on one line", printable(word));
  }
}

// A prefix is looked for at the front of each line.
void check_front(const Entry& entry, const Signature& signature) {
  if (signature.tells == Tells::kPrefix && !entry.text("pattern", true).starts_with('^'))
    entry.complain("the pattern of a prefix must begin with ^");
}

Signature signature_of(const Entry& entry) {
  entry.refuse_unknown_keys();
  const Tells tells = entry.choice("tells", names_of_tells(), Tells::kCause);
  const bool may_blame = tells == Tells::kCause || tells == Tells::kSign || tells == Tells::kEcho;
  Signature signature{.name = entry.text("name", true),
                      .tells = tells,
                      .cause = entry.cause(tells),
                      .policy = entry.choice("host", names_of_policies(), HostPolicy::kReporter),
                      .has = {},
                      .pattern = entry.pattern(),
                      .example = entry.text("example", false),
                      .reason = entry.text("reason", false),
                      .in = entry.texts_or_none("in"),
                      .is_first = entry.flag("first")};
  if (tells != Tells::kTag && tells != Tells::kPrefix) signature.has = entry.texts("has");
  check_words(entry, signature.has);
  check_groups(entry, signature);
  check_front(entry, signature);
  if (signature.policy == HostPolicy::kAtFault && (tells == Tells::kEcho || !may_blame))
    entry.complain("host: only causes and signs may find a host at fault");
  if (signature.policy == HostPolicy::kSuspect && !may_blame)
    entry.complain("host: only causes, signs and echoes may make a host suspect");
  if ((signature.policy == HostPolicy::kSuspect) == signature.reason.empty())
    entry.complain("reason: a text that tells why a host is suspect belongs to host = \"suspect\"");
  if (signature.is_first && signature.policy != HostPolicy::kSuspect)
    entry.complain("first: only for host = \"suspect\"");
  entry.text("source", false);
  signature.names_hosts = std::ranges::any_of(
      signature.pattern.group_names(), [](const std::string& group) { return group == "host" || group == "other"; });
  return signature;
}

void check_blocks(const std::vector<Signature>& signatures, const std::string& file) {
  for (const Signature& each : signatures)
    for (const std::string& name : each.in)
      ATHANOR_CHECK(std::ranges::any_of(signatures, [&](const Signature& other) { return begins(other, name); }),
                    "{}: signature {}: in: there is no block {} in this file", file, printable(each.name),
                    printable(name));
}

std::vector<std::string> words_of(const std::vector<Signature>& signatures) {
  std::vector<std::string> words(kEscapes.begin(), kEscapes.end());
  for (const Signature& signature : signatures) words.insert(words.end(), signature.has.begin(), signature.has.end());
  return words;
}

}  // namespace

std::vector<Signature> parse_signatures(std::string_view toml, const std::string& file) {
  toml::table root;
  try {
    root = parse_bounded_toml(toml, file);
  } catch (const toml::parse_error& error) {
    fail<ConfigError>("{}:{}:{}: {}; the file must be TOML with [[signature]] entries", file, error.source().begin.line,
                      error.source().begin.column, reason_in(error.description()));
  }
  for (const auto& [key, node] : root)
    ATHANOR_CHECK(key.str() == "signature", "{}: unknown key {}; there are only [[signature]] entries", file,
                  printable(key.str()));
  const toml::array* entries = root["signature"].as_array();
  ATHANOR_CHECK(entries && !entries->empty() && entries->is_homogeneous(toml::node_type::table),
                "{}: there are no [[signature]] entries", file);
  std::vector<Signature> signatures;
  std::set<std::string> names;
  for (const toml::node& node : *entries) {
    const Entry entry(*node.as_table(), file, signatures.size() + 1);
    signatures.push_back(signature_of(entry));
    if (!names.insert(signatures.back().name).second) entry.complain("there are two signatures of this name");
  }
  check_blocks(signatures, file);
  return signatures;
}

SignatureSet::SignatureSet(std::vector<Signature> signatures)
    : signatures_(std::move(signatures)), owner_of_word_(kEscapes.size()), words_(words_of(signatures_)) {
  for (uint32_t i = 0; i < signatures_.size(); ++i) {
    owner_of_word_.insert(owner_of_word_.end(), signatures_[i].has.size(), i);
    blocks_.emplace_back();
    for (const std::string& name : signatures_[i].in)
      for (uint32_t other = 0; other < signatures_.size(); ++other)
        if (begins(signatures_[other], name) && signatures_[other].sees_prefixes == signatures_[i].sees_prefixes)
          blocks_.back().push_back(other);
    if (signatures_[i].tells == Tells::kTag) tags_.push_back(i);
    if (signatures_[i].tells == Tells::kPrefix) prefixes_.push_back(i);
  }
}

SignatureSet SignatureSet::load(const std::vector<std::string>& files) {
  std::vector<Signature> all;
  const auto append = [&](std::vector<Signature> some) {
    std::move(some.begin(), some.end(), std::back_inserter(all));
  };
  for (const std::string& file : files) append(parse_signatures(read_file(file), file));
  for (Signature& signature : all) signature.sees_prefixes = true;
  append(parse_signatures(built_in_signatures(), "signatures.toml"));
  return SignatureSet(std::move(all));
}

void SignatureSet::find_candidates(std::string_view line, std::vector<uint32_t>& found) const {
  found.clear();
  words_.find_all(line, found);
  std::erase_if(found, [](uint32_t word) { return word < kEscapes.size(); });
  for (uint32_t& word : found) word = owner_of_word_[word];
  found.erase(std::unique(found.begin(), found.end()), found.end());  // words are in the order of their owners
}

}  // namespace athanor::launch
