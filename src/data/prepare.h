#pragma once
// Documents to a folder of shuffled training instances, in the three steps of the first paper ("Data preprocessing"):
// tokenize, permute, gather into shards.
//
// What an instance is. Step 1 makes of data file i one token array T_i, its documents with an end-of-document token
// after each. The paper cuts each T_i into T_i / C instances and loses up to C - 1 tokens of each file, all of a file
// shorter than C. Here the arrays are joined in the sorted order of the files before they are cut: instance k is
// tokens [k C, (k + 1) C) of T_0 T_1 T_2 ..., so a thousand small files are not lost, and at most C - 1 tokens of the
// whole input are (counted in the manifest as remainder_tokens). With one file it is the paper's cut. Boundaries depend
// on inputs, tokenizer and C alone: not on threads, on how a file is compressed, or on the seed.
//
// Step 2 is one permutation over the instances of all files, step 3 writes row r = instance P(r). Validation takes the
// last rows, so it is a random sample of everything and shares no instance with training.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/documents.h"
#include "data/manifest.h"
#include "data/tokenizer/tokenizer.h"

namespace athanor {

struct PrepareOptions {
  std::filesystem::path tokenizer;
  std::vector<std::string> inputs;  ///< files, folders, patterns (inputs.h)
  std::filesystem::path out;
  int64_t seq_len = 0;
  uint64_t seed = 1;
  DocumentOptions documents;
  std::string eos;                 ///< a token or its id; empty: the tokenizer's usual one
  double validation_fraction = 0;  ///< of the instances, in [0, 1)
  int num_threads = 0;             ///< 0: one for each core
  uint64_t shard_bytes = uint64_t{256} << 20;
  bool overwrite = false;
  uint64_t chunk_bytes = uint64_t{1} << 19;  ///< see TokenizeOptions
};

/// Writes `out` whole or not at all, and the same bytes whatever the number of threads.
/// @return what it wrote as manifest.json.
/// @throws ConfigError for options, DataError for inputs, IoError for the disk; `out` is then as it was.
DataManifest prepare(const PrepareOptions& options);

/// The end-of-document token: what `choice` says (an id in digits, or a token as the tokenizer writes it); if that is
/// empty the one that the tokenizer's file names, or else the one of the usual names that the tokenizer has.
/// @throws ConfigError naming the candidates when there is none or more than one.
uint32_t find_eos(const Tokenizer& tokenizer, const std::string& choice);

/// How many of `num_instances` are for validation: the nearest to the fraction, at least one if that is above 0, and
/// never all.
int64_t num_validation_instances(int64_t num_instances, double fraction);

}  // namespace athanor
