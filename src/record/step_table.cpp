#include "record/step_table.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/file_reader.h"

namespace athanor::inline record {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kBlockBytes = size_t{4} << 20;  // a line of a large model has some 10 KiB

// Calls `take` for each whole line: its bytes, after which SIMDJSON_PADDING more may be read.
template <class Take>
void for_each_line(const std::filesystem::path& path, Take take) {
  const FileReader file(path);
  std::vector<char> block(kBlockBytes + simdjson::SIMDJSON_PADDING);
  size_t kept = 0;  // bytes at the front of the block: the beginning of a line
  for (uint64_t offset = 0;;) {
    if (kept + simdjson::SIMDJSON_PADDING >= block.size()) block.resize(2 * block.size());
    const size_t room = block.size() - simdjson::SIMDJSON_PADDING - kept;
    const size_t num_read = file.read_up_to(offset, block.data() + kept, room);
    if (num_read == 0) return;
    offset += num_read;
    const std::string_view text(block.data(), kept + num_read);
    size_t begin = 0;
    for (size_t end = text.find('\n', kept); end != text.npos; end = text.find('\n', begin)) {
      take(text.substr(begin, end - begin));
      begin = end + 1;
    }
    kept = text.size() - begin;
    std::memmove(block.data(), block.data() + begin, kept);
  }
}

// A number that is asked for: the rest of its name within the present value, and its place in the row.
struct Wanted {
  std::string_view rest;
  size_t column;
};

void read_inside(const dom::element& value, const std::vector<Wanted>& wanted, std::vector<double>& row);

// Hands `value` to those who want it itself, or something in it. `name` is its name within what contains it.
void read_named(std::string_view name, const dom::element& value, const std::vector<Wanted>& wanted,
                std::vector<double>& row) {
  std::vector<Wanted> inside;
  for (const auto& each : wanted) {
    if (each.rest == name) {
      row[each.column] = value.is_null() ? INFINITY : value.is_number() ? double(value) : NAN;
    } else if (each.rest.size() > name.size() && each.rest[name.size()] == '.' && each.rest.starts_with(name)) {
      inside.push_back({each.rest.substr(name.size() + 1), each.column});
    }
  }
  if (!inside.empty()) read_inside(value, inside, row);
}

void read_inside(const dom::element& value, const std::vector<Wanted>& wanted, std::vector<double>& row) {
  if (value.is_object()) {
    for (const auto member : dom::object(value)) read_named(member.key, member.value, wanted, row);
  } else if (value.is_array()) {
    size_t index = 0;
    for (const auto item : dom::array(value)) read_named(std::to_string(index++), item, wanted, row);
  }
}

// The names of numbers, in the order of their occurrence.
class FieldNames {
 public:
  void add(const dom::element& value, const std::string& name) {
    if (value.is_number()) {
      found(name);
    } else if (dom::object object; value.get(object) == simdjson::SUCCESS) {
      for (const auto member : object) add(member.value, (name.empty() ? "" : name + ".") + std::string(member.key));
    } else if (dom::array array; value.get(array) == simdjson::SUCCESS && array.size() > 0) {
      const auto numbers = [](const dom::element& item) { return item.is_number(); };
      const bool single = array.size() == 1;
      if (std::ranges::any_of(array, numbers))
        found(single ? name + ".0" : fmt::format("{0}.0 to {0}.{1}", name, array.size() - 1));
    }
  }
  std::vector<std::string> names() && { return std::move(names_); }

 private:
  void found(const std::string& name) {
    if (std::ranges::find(names_, name) == names_.end()) names_.push_back(name);
  }

  std::vector<std::string> names_;
};

}  // namespace

StepTable read_step_table(const std::filesystem::path& path, const std::vector<std::string>& fields) {
  StepTable table;
  table.columns.resize(fields.size());
  // A column of a table may be asked for twice; a line gives it once.
  std::vector<Wanted> wanted = {{"step", 0}};
  std::vector<size_t> place;
  for (const auto& field : fields) {
    const auto same = std::ranges::find(wanted, std::string_view(field), &Wanted::rest);
    place.push_back(same == wanted.end() ? wanted.size() : same->column);
    if (same == wanted.end()) wanted.push_back({field, wanted.size()});
  }
  std::vector<double> row;
  dom::parser parser;
  for_each_line(path, [&](std::string_view line) {
    row.assign(wanted.size(), NAN);
    dom::element value;
    const bool parsed =
        parser.parse(line.data(), line.size(), /*realloc_if_needed=*/false).get(value) == simdjson::SUCCESS;
    if (parsed) read_inside(value, wanted, row);
    if (!parsed || !(std::isfinite(row[0]) && row[0] >= 1)) {
      ++table.num_damaged;
      return;
    }
    while (!table.steps.empty() && table.steps.back() >= row[0]) {
      table.steps.pop_back();
      for (auto& column : table.columns) column.pop_back();
    }
    table.steps.push_back(row[0]);
    for (size_t i = 0; i < fields.size(); ++i) table.columns[i].push_back(row[place[i]]);
  });
  return table;
}

std::vector<std::string> list_numeric_fields(const std::filesystem::path& path) {
  FieldNames names;
  dom::parser parser;
  for_each_line(path, [&](std::string_view line) {
    dom::element value;
    if (parser.parse(line.data(), line.size(), /*realloc_if_needed=*/false).get(value) == simdjson::SUCCESS)
      names.add(value, "");
  });
  return std::move(names).names();
}

}  // namespace athanor::inline record
