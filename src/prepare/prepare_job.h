#pragma once
// The work of one call of prepare after its options have been checked: the tokenizer, the files, and the data to which
// they are added.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dataset/manifest.h"
#include "prepare/prepare.h"
#include "prepare/prepare_journal.h"
#include "tokenizer/tokenizer.h"

namespace athanor::inline preparation {

struct PrepareJob {
  Tokenizer tokenizer;
  DocumentOptions documents;
  DataManifest manifest;  ///< describes the data already in the folder (none, unless files are added) and the settings
  std::vector<InputFile> files;        ///< new files, in their order
  std::vector<uint32_t> first_tokens;  ///< remainder of the data already there: the stream begins with it
  std::string base_hash;               ///< hash of the manifest that is added to; empty for a new folder

  bool adds() const { return !base_hash.empty(); }
  /// Returns all settings that determine the bytes of the result, except the inputs, each under the name of its flag:
  /// unfinished work is continued only with equal settings.
  nlohmann::json key(uint64_t chunk_bytes) const;
};

/// Checks the options and plans the work. @throws ConfigError, DataError, IoError.
PrepareJob plan_job(const PrepareOptions& options);

}  // namespace athanor::inline preparation
