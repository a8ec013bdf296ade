#pragma once
// Batches in an order that depends on data, seed, position and batch size alone, read ahead by threads.

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "data/mixture.h"

namespace athanor {

struct Batch {
  int64_t num_sequences = 0;  ///< of the whole batch
  int64_t seq_len = 0;
  std::vector<int32_t> tokens;  ///< [sequences held, seq_len], row-major
  DataLedger next;              ///< after this batch: a Loader that starts here goes on with the batch that follows
  std::vector<int64_t> held;    ///< which sequences of the batch are in `tokens`, ascending; empty: all of them

  /// Tokens [seq_len] of sequence `index` of the whole batch, which must be held.
  const int32_t* sequence(int64_t index) const;
};

/// Epoch e passes through a source's rows by Permutation(num_instances, seed, "data epoch <e>"); a batch may span
/// epochs. Which source comes next says the mixture.
class Loader {
 public:
  /// @param global_batch_size  sequences of a batch.
  /// @param num_threads        that read ahead, each a whole batch at a time.
  /// @param prefetch           batches that may wait to be taken.
  /// @param held               sequences of each batch that are read, ascending; empty: all.
  /// @throws DataError if `start` is not a place in `mixture`, ConfigError for sizes below 1.
  Loader(const Mixture& mixture, uint64_t seed, const DataLedger& start, int64_t global_batch_size, int num_threads,
         int prefetch = 2, std::vector<int64_t> held = {});
  /// Waits for the reading threads, at most the time of a batch.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next batch; waits if it is not read yet.
  /// @throws what reading it threw, also when called again.
  Batch next();

  /// What reading the next batch threw, or null; waits until it is read. next() then has it at once.
  std::exception_ptr failure();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The lengths of the documents (or parts of them) in an instance, appended to `out`; they sum to seq_len. A document
/// ends with its end-of-document token; what follows the last one counts as a document too.
void document_lengths(const int32_t* tokens, int64_t seq_len, uint32_t eos_id, std::vector<int32_t>& out);

}  // namespace athanor
