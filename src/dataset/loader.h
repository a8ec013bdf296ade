#pragma once
// Loads batches in an order that depends on data, seed, position and batch size alone; threads read ahead.

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "dataset/mixture.h"

namespace athanor {
class SpanLog;
}  // namespace athanor

namespace athanor::inline dataset {

struct Batch {
  int64_t num_sequences = 0;  ///< sequences of the whole (global) batch
  int64_t seq_len = 0;
  std::vector<int32_t> tokens;  ///< [sequences held, seq_len], row-major
  DataLedger next = {};  ///< ledger after this batch: a Loader that starts with it continues with the following batch
  std::vector<int64_t> held = {};  ///< indices, from 0, of the batch's sequences in `tokens`, ascending; empty: all

  /// Returns the tokens [seq_len] of sequence `index` of the whole batch, which must be held.
  const int32_t* sequence(int64_t index) const;
};

/// Reads the batches of a mixture; each rank has a separate loader, and nothing is collective. An epoch of a source
/// visits its rows in an EpochOrder, and then those that were added during the epoch in another. A batch may span
/// epochs. The mixture decides from which source the next instance comes.
class Loader {
 public:
  /// @param start              the ledger before the first batch; it may be of another mix (Mixture::enter).
  /// @param global_batch_size  sequences per batch.
  /// @param num_threads        threads that read ahead, each a whole batch at a time.
  /// @param prefetch           most batches that are read ahead: those being read, and those that wait to be taken.
  /// @param held               indices of the sequences that are read of each batch, ascending; empty: all.
  /// @throws DataError if `start` is not a position in `mixture`, ConfigError for sizes below 1.
  Loader(const Mixture& mixture, uint64_t seed, const DataLedger& start, int64_t global_batch_size, int num_threads,
         int prefetch = 2, std::vector<int64_t> held = {});
  /// Waits for the reading threads, at most as long as reading one batch takes.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Makes the reads that begin from now on log themselves; null: no more.
  void record_spans(std::shared_ptr<SpanLog> spans);

  /// Returns the next batch; waits until it is read.
  /// @throws what reading it threw (Dataset::read), also if called again.
  Batch next();

  /// Returns whether the next batch has been read without an error, so that next() returns it at once. Does not wait.
  bool has_next() const;

  /// Returns what reading the next batch threw, or null; waits until it is read. next() then returns at once.
  std::exception_ptr failure();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Appends to `out` the lengths of the documents (or parts of them) in an instance; they sum to seq_len. A document
/// ends with its end-of-document token; tokens after the last one count as a document too.
void document_lengths(const int32_t* tokens, int64_t seq_len, uint32_t eos_id, std::vector<int32_t>& out);

}  // namespace athanor::inline dataset
