#include "documents/inputs.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "documents/standard_input.h"

namespace athanor::inline documents {
namespace fs = std::filesystem;

namespace {

// Patterns of paths are those of a shell that knows `**`.
bool has_wildcard(const std::string& pattern) { return pattern.find_first_of("*?[") != std::string::npos; }

bool name_matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0;
}

using Names = std::vector<fs::path>;

// Adds to `found` the paths below `folder` (empty: the current one) that match the pattern's names from `at` on.
void match_below(const fs::path& folder, const Names& pattern, size_t at, std::vector<fs::path>& found) {
  if (at == pattern.size()) {
    found.push_back(folder);
    return;
  }
  const std::string name = pattern[at].string();
  std::error_code error;
  if (!has_wildcard(name)) {
    if (fs::exists(folder / name, error)) match_below(folder / name, pattern, at + 1, found);
    return;
  }
  const bool any_depth = name == "**";
  if (any_depth && at + 1 < pattern.size()) match_below(folder, pattern, at + 1, found);
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    const auto child = folder / entry.path().filename();
    const bool is_folder = entry.is_directory(error);
    if (!name_matches(any_depth ? "*" : name, entry.path().filename().string())) continue;
    if (any_depth) {
      if (is_folder) {
        if (!entry.is_symlink(error)) match_below(child, pattern, at, found);  // a link upwards would never end
      } else if (at + 1 == pattern.size()) {
        found.push_back(child);  // a trailing ** means every file below
      }
    } else if (is_folder || at + 1 == pattern.size()) {
      match_below(child, pattern, at + 1, found);
    }
  }
}

// Returns the existing paths that match, unsorted, files and folders. Within a name `*`, `?` and `[...]` ([!...]
// negated) match characters. `**` as a whole name matches any number of folders, including none, without following
// links; as the last name it matches every file below. Names that begin with a dot match only a pattern that begins
// with a dot too.
std::vector<fs::path> match_paths(const std::string& pattern) {
  const fs::path path(pattern);
  Names names;
  for (const auto& part : path.relative_path()) {
    if (!part.empty()) names.push_back(part);
  }
  std::vector<fs::path> found;
  match_below(path.root_path(), names, 0, found);
  return found;
}

constexpr const char* kKnownEndings = ".txt, .md, .jsonl, .ndjson, .json, each also with .gz or .zst, and .parquet";

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return extension;
}

// Returns the ending as a person would name it: ".warc.gz" rather than ".gz".
std::string shown_ending(const fs::path& file) {
  const auto extension = lower_extension(file);
  if (extension == ".gz" || extension == ".zst") return lower_extension(file.stem()) + extension;
  return extension.empty() ? "no extension" : extension;
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

class InputFinder {
 public:
  void add(const std::string& input) {
    std::error_code ignored;
    if (is_standard_input(input)) {
      files_.emplace_back(input);
    } else if (fs::is_directory(input, ignored)) {
      add_folder(input);
    } else if (fs::exists(input, ignored)) {
      add_file(input);
    } else if (has_wildcard(input)) {
      const auto matches = match_paths(input);
      ATHANOR_CHECK_DATA(!matches.empty(), "no file matches {}; check the pattern and the current folder", input);
      for (const auto& match : matches) {
        if (fs::is_directory(match, ignored)) {
          add_folder(match);
        } else {
          add_file(match);
        }
      }
    } else {
      fail<DataError>("{} does not exist; name files, folders or patterns", input);
    }
  }

  std::vector<fs::path> take() {
    std::sort(files_.begin(), files_.end(),
              [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    files_.erase(std::unique(files_.begin(), files_.end()), files_.end());
    return std::move(files_);
  }

 private:
  void add_file(const fs::path& file) {
    ATHANOR_CHECK_DATA(input_format(file), "{}: unknown kind of file ({}); known are {}{}", file.string(),
                       shown_ending(file), kKnownEndings,
                       fs::is_regular_file(file) ? "" : "; a pipe is read as - (standard input), with --format");
    files_.push_back(file.lexically_normal());
  }

  void add_folder(const fs::path& folder) {
    const size_t before = files_.size();
    std::map<std::string, int> unknown;
    // Links to folders are not followed: a link that leads upwards would never end.
    for (auto it = fs::recursive_directory_iterator(folder); it != fs::recursive_directory_iterator(); ++it) {
      if (is_hidden(it->path())) {
        if (it->is_directory()) it.disable_recursion_pending();
        continue;
      }
      if (!it->is_regular_file()) continue;
      if (input_format(it->path())) {
        files_.push_back(it->path().lexically_normal());
      } else {
        ++unknown[shown_ending(it->path())];
      }
    }
    std::vector<std::string> counts;
    for (const auto& [ending, count] : unknown) counts.push_back(fmt::format("{} ({})", ending, count));
    ATHANOR_CHECK_DATA(files_.size() > before, "{}: no documents in this folder{}; known kinds are {}", folder.string(),
                       counts.empty() ? "" : ", only " + join(counts), kKnownEndings);
    if (!counts.empty()) {
      log::warn("{}: passing over files of unknown kinds: {}; known are {}", folder.string(), join(counts),
                kKnownEndings);
    }
  }

  std::vector<fs::path> files_;
};

}  // namespace

std::optional<InputFormat> input_format(const fs::path& file) {
  static const std::map<std::string, InputKind> kinds{{".txt", InputKind::kText},
                                                      {".md", InputKind::kText},
                                                      {".jsonl", InputKind::kJsonLines},
                                                      {".ndjson", InputKind::kJsonLines},
                                                      {".json", InputKind::kJson}};
  auto compression = Compression::kNone;
  auto extension = lower_extension(file);
  if (extension == ".parquet") return InputFormat{InputKind::kParquet, Compression::kNone};
  if (extension == ".gz") compression = Compression::kGzip;
  if (extension == ".zst") compression = Compression::kZstd;
  if (compression != Compression::kNone) extension = lower_extension(file.stem());
  const auto found = kinds.find(extension);
  if (found == kinds.end()) return std::nullopt;
  return InputFormat{found->second, compression};
}

std::vector<fs::path> expand_inputs(const std::vector<std::string>& inputs) {
  ATHANOR_CHECK_DATA(!inputs.empty(), "no inputs; name files, folders or patterns");
  InputFinder finder;
  for (const auto& input : inputs) finder.add(input);
  return finder.take();
}

}  // namespace athanor::inline documents
