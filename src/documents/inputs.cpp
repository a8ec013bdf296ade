#include "documents/inputs.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "documents/standard_input.h"
#include "documents/wildcard.h"

namespace athanor::inline documents {
namespace fs = std::filesystem;

namespace {

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
