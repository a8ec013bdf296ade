#pragma once
// The manifest of a prepared folder: `athanor prepare` writes manifest.json next to the tokenizer and the shards.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_template.h"
#include "config/selection_options.h"

namespace athanor::inline dataset {

/// Version 1 can be read too: it has no parts, and files cannot be added to it.
inline constexpr int64_t kDataFormatVersion = 2;
inline constexpr const char* kDataManifestName = "manifest.json";

/// An .npy file [instances, seq_len].
struct ShardEntry {
  std::string file;  ///< name in the folder
  int64_t instances = 0;
  std::string hash;  ///< hash of the whole file (base/hash.h)
};

/// The split "train" or "validation". No instance is in both.
struct SplitEntry {
  int64_t instances = 0;
  int64_t tokens = 0;             ///< instances · seq_len
  std::vector<ShardEntry> files;  ///< row numbers, from 0, count through the files in this order
};

/// One input file and its part of the token stream.
struct InputEntry {
  std::string path;  ///< path where it was found
  int64_t documents = 0;
  int64_t tokens = 0;       ///< end-of-document tokens included
  int64_t bytes = -1;       ///< size of the file; -1: not known
  std::string fingerprint;  ///< file_fingerprint() (prepare_journal.h); empty: not known
};

/// The checksums of the blocks of a part's shards (block_checksums.h).
struct ChecksumEntry {
  std::string file, hash;  ///< name in the folder, and hash of that file
  int64_t block_rows = 0;  ///< rows in a block
};

/// The result of one call of `athanor prepare`: the first call, or one that added files. Its inputs and shards follow
/// those of the earlier parts; its instances are shuffled among themselves.
struct PartEntry {
  int64_t inputs = 0, documents = 0, tokens = 0, text_bytes = 0;
  std::map<std::string, int64_t> instances;  ///< number of instances by split
  std::string version, commit;               ///< the program (base/build_info.h); empty: an older program wrote it
  std::optional<ChecksumEntry> checksums;    ///< none: an older program wrote it, or it has no instances
};

/// The tokens at the end of the stream that were too few for an instance, as an .npy file [1, remainder_tokens]. The
/// stream of files that are added later begins with them.
struct RemainderEntry {
  std::string file, hash;
};

struct DataManifest {
  int64_t version = kDataFormatVersion;
  std::string tokenizer_file;  ///< name of the copy in the folder
  std::string tokenizer_hash;  ///< hash of that file; a model's checkpoint is compared with it
  uint32_t vocab_size = 0;
  uint32_t eos_id = 0;
  int64_t seq_len = 0;
  uint64_t seed = 0;
  std::string dtype;                         ///< "uint16" or "uint32"
  std::map<std::string, SplitEntry> splits;  ///< by name: "train", and "validation" if there is one

  int64_t documents = 0;  ///< documents that became tokens
  int64_t tokens = 0;     ///< end-of-document tokens included
  /// Tokens at the end of the stream, too few for an instance; tokens - remainder_tokens are stored in shards.
  int64_t remainder_tokens = 0;
  int64_t text_bytes = 0;  ///< UTF-8 bytes of the documents
  /// Number of documents left out, by cause; an expression that dropped documents is a cause. The rest of a damaged
  /// file counts as one.
  std::map<std::string, int64_t> skipped;
  std::vector<InputEntry> inputs;

  // The fields below exist since version 2. A folder of version 1 counts as one part.
  std::vector<PartEntry> parts;
  std::optional<RemainderEntry> remainder;  ///< none if remainder_tokens is 0
  double validation_fraction = 0;
  std::string text_field;
  SelectionOptions selection;  ///< selection of documents; not in the file if empty
  /// The tokens around each document, the end-of-document token apart; not in the file if empty.
  TextTemplate text_template;
  /// Texts of special tokens in documents were read as text (SpecialText::kIsText of the tokenizer).
  bool split_special_tokens = false;
  int64_t special_token_documents = 0;  ///< documents that had such a text, which became the token
  uint64_t shard_bytes = 0;             ///< most bytes of a shard

  /// Bytes of a token id in the shards.
  int item_bytes() const { return dtype == "uint16" ? 2 : 4; }
};

/// Returns the text of manifest.json.
std::string data_manifest_text(const DataManifest& manifest);

/// Parses the text of manifest.json. `name` names the file in messages.
/// @throws DataError with the byte or the key; also for counts that contradict each other.
DataManifest parse_data_manifest(std::string_view text, const std::string& name);

/// Returns the text of FOLDER/manifest.json.
/// @throws DataError with the remedy if `folder` was not written by `athanor prepare`; IoError.
std::string read_data_manifest_text(const std::filesystem::path& folder);

/// Reads and parses FOLDER/manifest.json.
/// @throws as read_data_manifest_text and parse_data_manifest do.
DataManifest read_data_manifest(const std::filesystem::path& folder);

}  // namespace athanor::inline dataset
