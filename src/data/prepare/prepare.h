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
//
// A run that was killed goes on where it was: what is done lies in <out>.partial (partial_folder.h) with a journal of
// it (prepare_journal.h). Memory stays below a bound (memory_budget.h), the disk is read and written in order
// (gather.h). Files can be added to a folder that is finished (PrepareOptions::add).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/documents/documents.h"
#include "data/manifest.h"
#include "data/tokenizer/tokenizer.h"

namespace athanor {

struct PrepareOptions {
  std::filesystem::path tokenizer;
  std::vector<std::string> inputs;  ///< files, folders, patterns (inputs.h)
  std::filesystem::path out;
  int64_t seq_len = 0;
  std::optional<uint64_t> seed;  ///< none: 1
  DocumentOptions documents;
  bool text_field_given = false;              ///< else adding reads the field that was read before
  std::string eos;                            ///< a token or its id; empty: the tokenizer's usual one
  std::optional<double> validation_fraction;  ///< of the instances, in [0, 1); none: 0
  int num_threads = 0;                        ///< 0: one for each core
  uint64_t memory_bytes = 0;                  ///< of the whole process; 0: half of what is available
  std::optional<uint64_t> shard_bytes;        ///< none: 256 MiB
  bool overwrite = false;
  bool add = false;      ///< to what is in `out`; what is not given is as it was, what is given must be
  bool restart = false;  ///< throw away what an unfinished run left

  uint64_t chunk_bytes = uint64_t{1} << 19;  ///< see TokenizeOptions
  /// After an error, less text than this is not worth keeping for the next run: some seconds of work.
  int64_t min_kept_text_bytes = int64_t{64} << 20;
  std::function<bool()> stopping;  ///< asked now and then; true ends the run, to be gone on with
};

/// The run was asked to stop and did; the same options go on with it.
class PrepareStopped : public Error {
 public:
  using Error::Error;
};

/// Writes `out` whole or not at all, and the same bytes whatever the number of threads, the memory, and how often it
/// was killed and begun again.
/// @return what is in `out` now, as manifest.json.
/// @throws ConfigError for options, DataError for inputs, IoError for the disk, PrepareStopped; `out` is then as it
/// was.
DataManifest prepare(const PrepareOptions& options);

/// The end-of-document token: what `choice` says (an id in digits, or a token as the tokenizer writes it); if that is
/// empty the one that the tokenizer's file names, or else the one of the usual names that the tokenizer has.
/// @throws ConfigError naming the candidates when there is none or more than one.
uint32_t find_eos(const Tokenizer& tokenizer, const std::string& choice);

/// How many of `num_instances` are for validation: the nearest to the fraction, at least one if that is above 0, and
/// never all.
int64_t num_validation_instances(int64_t num_instances, double fraction);

}  // namespace athanor
