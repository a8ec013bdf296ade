#include "checkpoint/manifest_summary.h"

#include <string_view>

#include "base/error.h"
#include "base/file_reader.h"
#include "checkpoint/manifest.h"
#include "checkpoint/manifest_head.h"
#include "checkpoint/strict_json.h"

namespace athanor::inline checkpoint {
namespace {

// The writer begins each table on a new line, and a text in JSON contains no line break.
constexpr std::string_view kTables = "\n\"tensors\": ";
constexpr size_t kFirstBlock = 64 << 10;
// The configuration and a few numbers for each parameter and expert: 100 bytes for each of 100,000 take 10 MB.
constexpr size_t kMostBytes = 64 << 20;

/// Reads up to the tables, or returns a text without them.
std::string read_until_tables(const std::filesystem::path& path) {
  const FileReader file(path);
  std::string text;
  size_t searched = 0;
  for (size_t want = kFirstBlock; text.find(kTables, searched) == text.npos && want <= kMostBytes; want *= 2) {
    searched = text.size() > kTables.size() ? text.size() - kTables.size() : 0;
    const size_t before = text.size();
    text.resize(want);
    text.resize(before + file.read_up_to(before, text.data() + before, want - before));
    if (text.size() < want && text.find(kTables, searched) == text.npos) break;  // the file ends here
  }
  return text;
}

std::string text_member(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

ManifestSummary read_manifest_summary(const std::filesystem::path& file) {
  const std::string where = file.string(), text = read_until_tables(file);
  ATHANOR_CHECK_CHECKPOINT(text.starts_with(kManifestHashStart),
                           "{}: not a manifest of a checkpoint: it must start with {}...", where, kManifestHashStart);
  const size_t end = text.find(kTables);
  ATHANOR_CHECK_CHECKPOINT(end != text.npos, "{}: damaged: its tables do not begin in the first {} bytes", where,
                           text.size());
  const size_t begin = text.find('\n') + 1;
  ATHANOR_CHECK_CHECKPOINT(begin < end && text[end - 1] == ',', "{}: damaged: no comma before its tables", where);
  const auto head = parse_strict_json("{" + text.substr(begin, end - 1 - begin) + "}", where, begin - 1);
  const auto version = json_size(head, "version", where);
  ATHANOR_CHECK_CHECKPOINT(head.value("format", nlohmann::json()) == kManifestFormat && version == kCheckpointVersion,
                           "{}: version {} was written by another athanor; this one reads version {}", where, version,
                           kCheckpointVersion);
  const auto& program = head.contains("athanor") ? head["athanor"] : nlohmann::json::object();
  return {text_member(program, "version"), text_member(program, "commit"), json_member(head, "model", where),
          json_member(head, "state", where)};
}

}  // namespace athanor::inline checkpoint
