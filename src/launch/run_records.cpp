#include "launch/run_records.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"

namespace athanor::launch {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

// The newest lines of a file of metrics that are read: a line has some hundred bytes, with loads of layers some
// kilobytes.
constexpr uint64_t kTail = 1 << 18;

std::string text_of(const fs::path& file, uint64_t from = 0) {
  std::ifstream stream(file, std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(from));
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

uint64_t size_of(const fs::path& file) {
  std::error_code none;
  const auto size = fs::file_size(file, none);
  return none ? 0 : size;
}

int64_t number_in(const json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// Calls `visit` with each line that is an object: a killed process may have left half a line.
void for_each_line(const std::string& text, const std::function<void(const json&)>& visit) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const auto line = read_json(std::string_view(text).substr(begin, end - begin));
    if (line.is_object()) visit(line);
    begin = end + 1;
  }
}

bool is_begin(const json& line) {
  const auto event = line.find("event");
  return event != line.end() && (*event == "start" || *event == "resume" || *event == "went_back");
}

fs::path events_of(const fs::path& run_dir) { return run_dir / "events.jsonl"; }

std::string words_of(const fs::path& run_dir) { return text_of(run_dir / "log" / "last-words.json"); }

}  // namespace

RunRecords read_records(const fs::path& run_dir) {
  RunRecords records{words_of(run_dir), size_of(events_of(run_dir)), 0};
  for_each_line(text_of(events_of(run_dir)),
                [&](const json& line) { records.attempt = std::max(records.attempt, number_in(line, "attempt")); });
  return records;
}

bool has_begun(const fs::path& run_dir, const RunRecords& before) {
  return size_of(events_of(run_dir)) != before.events_bytes;
}

std::optional<LastWords> fresh_last_words(const fs::path& run_dir, const RunRecords& before) {
  const std::string text = words_of(run_dir);
  const auto json = read_json(text);
  if (!json.is_object() || text == before.last_words) return std::nullopt;
  LastWords words;
  words.exit_code = static_cast<int>(number_in(json, "exit_code"));
  if (json.contains("rank") && json["rank"].is_number_integer()) words.rank = json["rank"].get<int>();
  if (json.contains("host") && json["host"].is_string()) words.host = json["host"];
  if (const auto missing = json.find("missing"); missing != json.end() && missing->is_array()) {
    words.host.clear();  // the reporter's
    for (const auto& each : *missing) {
      const std::string host = each.is_object() ? each.value("host", "") : "";
      if (!host.empty() && std::ranges::find(words.missing, host) == words.missing.end()) words.missing.push_back(host);
    }
  }
  if (json.contains("text") && json["text"].is_string()) words.text = json["text"];
  return words;
}

Steps steps_since(const fs::path& run_dir, const RunRecords& before) {
  Steps steps;
  const uint64_t size = size_of(run_dir / "metrics.jsonl");
  for_each_line(text_of(run_dir / "metrics.jsonl", size - std::min(size, kTail)), [&](const json& line) {
    if (number_in(line, "attempt") > before.attempt && number_in(line, "step") > 0)
      steps.last = number_in(line, "step");
  });
  if (!steps.last) return steps;
  for_each_line(text_of(events_of(run_dir), before.events_bytes), [&](const json& line) {
    if (is_begin(line) && !steps.first) steps.first = number_in(line, "step") + 1;
  });
  return steps;
}

std::optional<int64_t> greatest_step(const fs::path& run_dir) {
  std::optional<int64_t> greatest;
  const uint64_t size = size_of(run_dir / "metrics.jsonl");
  for_each_line(text_of(run_dir / "metrics.jsonl", size - std::min(size, kTail)), [&](const json& line) {
    if (const int64_t step = number_in(line, "step"); step > 0) greatest = std::max(greatest.value_or(0), step);
  });
  return greatest;
}

StopRecord stop_since(const fs::path& run_dir, const RunRecords& before) {
  StopRecord stop;
  for_each_line(text_of(events_of(run_dir), before.events_bytes), [&](const json& line) {
    const auto event = line.find("event");
    if (event != line.end() && *event == "stop")
      stop = {line.contains("limit"), static_cast<int>(number_in(line, "signal"))};
  });
  return stop;
}

std::optional<int> end_code_since(const fs::path& run_dir, const RunRecords& before) {
  std::optional<int> code;
  for_each_line(text_of(events_of(run_dir), before.events_bytes), [&](const json& line) {
    const auto event = line.find("event");
    if (event != line.end() && *event == "end") code = static_cast<int>(number_in(line, "exit_code"));
  });
  return code;
}

}  // namespace athanor::launch
