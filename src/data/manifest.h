#pragma once
// What `athanor prepare` says about the folder it wrote: manifest.json beside the tokenizer and the shards.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/documents/document_error.h"
#include "data/documents/selection_options.h"

namespace athanor {

inline constexpr int64_t kDataFormatVersion = 2;  ///< 1 is read too: it has no parts, and no files can be added
inline constexpr const char* kDataManifestName = "manifest.json";

/// An .npy file [instances, seq_len].
struct ShardEntry {
  std::string file;  ///< its name in the folder
  int64_t instances = 0;
  std::string hash;  ///< of the whole file (base/hash.h)
};

/// "train" or "validation". No instance is in both.
struct SplitEntry {
  int64_t instances = 0;
  int64_t tokens = 0;
  std::vector<ShardEntry> files;  ///< rows count through them in this order
};

/// One input file: its part of the token stream.
struct InputEntry {
  std::string path;  ///< as it was found
  int64_t documents = 0;
  int64_t tokens = 0;       ///< end-of-document tokens included
  int64_t bytes = -1;       ///< of the file; -1: not known
  std::string fingerprint;  ///< of its beginning and end (prepare_journal.h); empty: not known
};

/// What one run of `athanor prepare` made: the first, or one that added files. Its inputs and shards follow those of
/// the parts before it; its instances are shuffled among themselves.
struct PartEntry {
  int64_t inputs = 0, documents = 0, tokens = 0, text_bytes = 0;
  std::map<std::string, int64_t> instances;  ///< of each split
};

/// The tokens at the end of the stream that were too few for an instance, as an .npy file [1, remainder_tokens]. Files
/// that are added go on after them.
struct RemainderEntry {
  std::string file, hash;
};

struct DataManifest {
  int64_t version = kDataFormatVersion;
  std::string tokenizer_file;  ///< a copy in the folder
  std::string tokenizer_hash;  ///< of that file; also what a model's checkpoint is compared with
  uint32_t vocab_size = 0;
  uint32_t eos_id = 0;
  int64_t seq_len = 0;
  uint64_t seed = 0;
  std::string dtype;  ///< "uint16" or "uint32"
  std::map<std::string, SplitEntry> splits;

  int64_t documents = 0;
  int64_t tokens = 0;            ///< end-of-document tokens included
  int64_t remainder_tokens = 0;  ///< at the end of the stream, too few for an instance: tokens - remainder are stored
  int64_t text_bytes = 0;
  SkipCounts skipped;  ///< by cause, one of which is the expression that dropped a document
  std::vector<InputEntry> inputs;

  // Since version 2; an older folder counts as one part.
  std::vector<PartEntry> parts;
  std::optional<RemainderEntry> remainder;  ///< none if remainder_tokens is 0
  double validation_fraction = 0;
  std::string text_field;
  SelectionOptions selection;  ///< of documents; not in the file if empty
  uint64_t shard_bytes = 0;

  int item_bytes() const { return dtype == "uint16" ? 2 : 4; }
};

/// The text of manifest.json.
std::string data_manifest_text(const DataManifest& manifest);

/// `name` names the file in messages.
/// @throws DataError with the byte or the key; counts that contradict each other are refused too.
DataManifest parse_data_manifest(std::string_view text, const std::string& name);

/// The text of FOLDER/manifest.json.
/// @throws DataError with the remedy if `folder` was not written by `athanor prepare`.
std::string read_data_manifest_text(const std::filesystem::path& folder);

/// Reads FOLDER/manifest.json.
/// @throws DataError with the remedy if `folder` was not written by `athanor prepare`.
DataManifest read_data_manifest(const std::filesystem::path& folder);

}  // namespace athanor
