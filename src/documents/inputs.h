#pragma once
// Finds the files that a command line names, and the kind of each.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace athanor::inline documents {

enum class InputKind { kText, kJsonLines, kJson, kParquet };
enum class Compression { kNone, kGzip, kZstd };

struct InputFormat {
  InputKind kind;
  Compression compression = Compression::kNone;
};

/// Returns the format by the end of the name: .txt .md .jsonl .ndjson .json, each also followed by .gz or .zst, and
/// .parquet; none for any other name.
std::optional<InputFormat> input_format(const std::filesystem::path& file);

/// Returns the files that `inputs` name: files as given, folders searched recursively (links to folders are not
/// followed), patterns (`*`, `?`, `[a-z]`, `**` for any depth) matched. They are sorted by path and each occurs once,
/// so that the order depends on neither the shell nor the file system.
///
/// Hidden files are skipped in folders and by patterns. In a folder, files of an unknown kind are skipped
/// with a warning that counts them; if they are named one by one or by a pattern, they are refused. `-` is standard
/// input (standard_input.h), and is returned as it is.
/// @throws DataError for a missing file, a pattern or folder without files, an unknown kind of file.
std::vector<std::filesystem::path> expand_inputs(const std::vector<std::string>& inputs);

}  // namespace athanor::inline documents
