#pragma once
// `athanor prepare`: turns documents into a folder of shuffled training instances, in the three steps of the first
// paper ("Data preprocessing"): tokenize, permute, gather into shards.
//
// An instance is a sequence of C = seq_len tokens. Step 1 makes one token array T_i of data file i: its documents with
// an end-of-document token after each. The paper cuts each T_i into |T_i| / C instances and loses up to C - 1 tokens of
// each file, and all of a file shorter than C. Athanor joins the arrays in the sorted order of the files before it cuts
// them: instance k is tokens [k C, (k + 1) C) of T_0 T_1 T_2 ... The input as a whole thus loses at most C - 1 tokens
// (counted in the manifest as remainder_tokens), even if it is a thousand small files. With one file the cut equals the
// paper's. Boundaries depend on inputs, tokenizer and C alone: not on threads, on the compression of a file, or on the
// seed.
//
// Step 2 is one permutation P over the instances of all files; step 3 writes row r = instance P(r). Validation takes
// the last rows, so it is a random sample of all inputs and shares no instance with training.
//
// A call that was killed can be repeated and continues where it stopped: finished work is in <out>.partial
// (partial_folder.h) with a journal (prepare_journal.h). Memory stays below a bound (memory_budget.h), and the disk is
// read and written sequentially (gather.h). Files can be added to a finished folder (PrepareOptions::add).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "dataset/manifest.h"
#include "documents/documents.h"
#include "tokenizer/tokenizer.h"

namespace athanor::inline preparation {

struct PrepareOptions {
  std::filesystem::path tokenizer;
  std::vector<std::string> inputs;  ///< files, folders and patterns (inputs.h)
  std::filesystem::path out;
  int64_t seq_len = 0;
  std::optional<uint64_t> seed;  ///< 1 if not given
  DocumentOptions documents;
  bool text_field_given = false;              ///< if false, adding files reads the field that the folder was made with
  std::string eos;                            ///< a token or its id; empty: find_eos() chooses
  bool add_special_tokens = false;            ///< put the tokens of the tokenizer's template around each document (BOS)
  bool split_special_tokens = false;          ///< the text of a special token in a document is text
  std::optional<double> validation_fraction;  ///< fraction of the instances, in [0, 1); 0 if not given
  int num_threads = 0;                        ///< 0: one for each core
  uint64_t memory_bytes = 0;  ///< bound for the whole process; 0: half of the available memory, plus that in use
  std::optional<uint64_t> shard_bytes;  ///< 256 MiB if not given
  bool overwrite = false;
  /// Adds the inputs to the data in `out`. Options that are not given are taken from the folder; options that are given
  /// must equal the folder's, except the text field and shard_bytes.
  bool add = false;
  bool restart = false;  ///< discard what an unfinished call left

  uint64_t chunk_bytes = uint64_t{1} << 19;  ///< see TokenizeOptions
  /// After an error, the partial folder is kept only if it holds at least this much text (less is some seconds of
  /// work).
  int64_t min_kept_text_bytes = int64_t{64} << 20;
  /// Called now and then, also by several threads at once; true stops the call (PrepareStopped). Null: never.
  std::function<bool()> stopping;
};

/// Thrown if PrepareOptions::stopping asked for a stop. A call with the same options continues.
class PrepareStopped : public Error {
 public:
  using Error::Error;
};

/// Writes the data of `out` completely or not at all. The bytes written do not depend on the number of threads, on the
/// memory, or on how often the work was killed and restarted.
/// @return the manifest that is in `out` now.
/// @throws ConfigError for options, DataError for inputs, IoError for the disk, PrepareStopped. The data in `out` are
///         then unchanged, except if an IoError came after the last step (partial_folder.h).
DataManifest prepare(const PrepareOptions& options);

/// Returns the end-of-document token: the one that `choice` names (an id in digits, or a token as the tokenizer writes
/// it). If `choice` is empty, it is the token that the tokenizer's files name as their end, or else the only special
/// token with one of the usual names.
/// @throws ConfigError if there is no candidate, or several (it names them).
uint32_t find_eos(const Tokenizer& tokenizer, const std::string& choice);

/// Returns the number of validation instances: the nearest integer to fraction * num_instances, at least one if the
/// fraction is above 0, and never all. If the fraction is above 0, num_instances must be at least 2.
int64_t num_validation_instances(int64_t num_instances, double fraction);

}  // namespace athanor::inline preparation
