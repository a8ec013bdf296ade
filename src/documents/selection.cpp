#include "documents/selection.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/text.h"
#include "documents/attribute_records.h"
#include "documents/document_error.h"
#include "documents/json_fields.h"
#include "documents/standard_input.h"

namespace athanor::inline documents {
namespace {

using nlohmann::json;

constexpr const char* kId = "id";
constexpr const char* kAttributes = "attributes";

std::string where_is(const Record& record, const std::filesystem::path& file) {
  return fmt::format("{}:{}{}", shown_name(file), record.is_row ? "row " : "", record.line);
}

// Returns the reason on one line, cut after a length.
std::string reason(std::string_view what) { return printable(what.substr(0, 240)); }

std::string shown(const json& id) {
  const auto text = id.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= 120 ? text : text.substr(0, 120) + "...";
}

}  // namespace

Selection::Selection(SelectionOptions options) : options_(std::move(options)) {
  for (const auto& text : options_.keep) add_filter(true, text);
  for (const auto& text : options_.drop) add_filter(false, text);
  ATHANOR_CHECK(!filters_.empty(),
                "--attributes {} selects nothing by itself; set what to keep or drop, with --keep or --drop",
                join(options_.attributes, ","));
  if (!options_.attributes.empty()) fields_.emplace_back(kId);
  for (const auto& path : paths_) fields_.push_back(path.steps[0]);
  std::sort(fields_.begin(), fields_.end());
  fields_.erase(std::unique(fields_.begin(), fields_.end()), fields_.end());
}

void Selection::add_filter(bool keeps, const std::string& text) {
  const std::string flag = keeps ? "--keep" : "--drop";
  try {
    filters_.push_back({keeps, flag, printable(text), fmt::format("dropped by {} {}", flag, printable(text)),
                        Expression::parse(text)});
  } catch (const ExpressionError& error) {
    fail<ConfigError>("{} '{}': {}", flag, printable(text), error.what());
  }
  for (const auto& steps : filters_.back().expression.paths()) {
    const bool known = std::any_of(paths_.begin(), paths_.end(), [&](const auto& path) { return path.steps == steps; });
    if (!known) paths_.push_back({steps, std::make_unique<std::atomic<bool>>(false)});
  }
}

std::vector<FieldPath> Selection::scalar_paths(const std::string& text_field) const {
  std::vector<FieldPath> found;
  if (!options_.attributes.empty()) found.push_back({kId});
  for (const auto& path : paths_) {
    const bool from_files = path.steps[0] == kAttributes && !options_.attributes.empty();
    const bool is_text = join(path.steps, ".") == text_field;
    if (!is_text && !from_files && std::find(found.begin(), found.end(), path.steps) == found.end()) {
      found.push_back(path.steps);
    }
  }
  return found;
}

json Selection::read_document(const Record& record, const std::filesystem::path& file) const {
  if (record.is_row) return record.fields.empty() ? json::object() : read_json(record.fields);
  if (!record.is_json || fields_.empty()) return json::object();
  try {
    return read_json_fields(record.bytes, fields_);
  } catch (const DataError& error) {
    throw DocumentError(kInvalidJson,
                        fmt::format("{}: invalid JSON: {}", where_is(record, file), reason(error.what())));
  }
}

void Selection::add_attributes(const Record& record, const std::filesystem::path& file, json& document) const {
  if (record.attributes.empty()) return;
  json all = json::object();
  for (size_t i = 0; i < record.attributes.size(); ++i) {
    const auto& row = record.attributes[i];
    const auto where = [&] {
      return fmt::format("{}:{}", find_attribute_file(file, options_.attributes[i]).string(), row.line);
    };
    const auto refuse = [&](const std::string& what) {
      throw DocumentError(kBadAttributes, fmt::format("{}: {}", where(), what));
    };
    JsonFault fault;
    json parsed = read_json(row.bytes, &fault);
    if (parsed.is_discarded()) refuse("invalid JSON: " + reason(fault.reason));
    if (!parsed.is_object() || !parsed.contains(kAttributes) || !parsed[kAttributes].is_object()) {
      refuse("a row {\"id\": ..., \"attributes\": {...}} is expected");
    }
    const auto id = document.contains(kId) ? document[kId] : json();
    const auto its = parsed.contains(kId) ? parsed[kId] : json();
    if (id.is_null() || id != its) {
      fail<DataError>(
          "{}: id {}, but the document {} has id {}; attributes are matched by their order: the rows must be "
          "the same",
          where(), shown(its), where_is(record, file), shown(id));
    }
    for (auto& [name, value] : parsed[kAttributes].items()) {
      const bool twice = all.contains(name);
      if (twice)
        refuse(fmt::format("attribute \"{}\" is in another of the files of --attributes too", printable(name)));
      all[name] = std::move(value);
    }
  }
  // Attributes from files take precedence over those in the documents' own rows.
  auto& own = document[kAttributes];
  if (!own.is_object()) own = json::object();
  own.update(all);
}

void Selection::note_paths(const json& document, const std::string& text_field) const {
  any_judged_.store(true, std::memory_order_relaxed);
  for (const auto& path : paths_) {
    if (path.found->load(std::memory_order_relaxed)) continue;
    const json* at = &document;
    for (const auto& step : path.steps) {
      const bool there = at && at->is_object() && at->contains(step);
      at = there ? &(*at)[step] : nullptr;
    }
    if (at || join(path.steps, ".") == text_field) path.found->store(true, std::memory_order_relaxed);
  }
}

std::string_view Selection::judge(const Record& record, std::string_view text, const std::filesystem::path& file,
                                  const std::string& text_field) const {
  auto document = read_document(record, file);
  add_attributes(record, file, document);
  note_paths(document, text_field);
  const ExpressionSubject subject{document, text_field, text};
  for (const auto& filter : filters_) {
    try {
      if (filter.expression.holds(subject) != filter.keeps) return filter.name;
    } catch (const ExpressionError& error) {
      throw DocumentError(
          kUnfitValue, fmt::format("{}: {} '{}', {}", where_is(record, file), filter.flag, filter.text, error.what()));
    }
  }
  return {};
}

std::vector<std::string> Selection::paths_never_found() const {
  std::vector<std::string> names;
  for (const auto& path : paths_) {
    if (any_judged_ && !*path.found) names.push_back(join(path.steps, "."));
  }
  return names;
}

std::shared_ptr<const Selection> make_selection(SelectionOptions options) {
  return options.empty() ? nullptr : std::make_shared<const Selection>(std::move(options));
}

}  // namespace athanor::inline documents
