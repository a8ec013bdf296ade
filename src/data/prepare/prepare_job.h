#pragma once
// What a run of prepare is to do, once its options are checked: with which tokenizer, to which files, after what.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/manifest.h"
#include "data/prepare/prepare.h"
#include "data/prepare/prepare_journal.h"
#include "data/tokenizer/tokenizer.h"

namespace athanor {

struct PrepareJob {
  Tokenizer tokenizer;
  DocumentOptions documents;
  DataManifest manifest;         ///< what is in the folder already (nothing, unless files are added) and how it is made
  std::vector<InputFile> files;  ///< new ones, in their order
  std::vector<uint32_t> first_tokens;  ///< the remainder of what is there: the stream begins with them
  std::string base_hash;               ///< of the manifest that is added to; empty for a new folder

  bool adds() const { return !base_hash.empty(); }
  /// All that decides the bytes of the result but the inputs, each under the name of its flag: an unfinished run is
  /// gone on with only if it had the same.
  nlohmann::json key(uint64_t chunk_bytes) const;
};

/// @throws ConfigError, DataError, IoError.
PrepareJob plan_job(const PrepareOptions& options);

}  // namespace athanor
