#pragma once
// Which files a command line names, and what kind each is.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace athanor {

enum class InputKind { kText, kJsonLines, kJson, kParquet };
enum class Compression { kNone, kGzip, kZstd };

struct InputFormat {
  InputKind kind;
  Compression compression = Compression::kNone;
};

/// By the name's end: .txt .md .jsonl .ndjson .json, each also with .gz or .zst after it, and .parquet; none for any
/// other.
std::optional<InputFormat> input_format(const std::filesystem::path& file);

/// The files that `inputs` name: files as they are, folders searched through, patterns (`*`, `?`, `[a-z]`, `**` for any
/// depth) matched. Sorted by path, each once, so that the order depends on neither the shell nor the file system.
///
/// Hidden files are passed over, in folders and by patterns. In a folder, files of an unknown kind are passed over with
/// a warning that counts them; named one by one or by a pattern they are refused.
/// @throws DataError for a missing file, a pattern or folder without files, an unknown kind of file.
std::vector<std::filesystem::path> expand_inputs(const std::vector<std::string>& inputs);

}  // namespace athanor
