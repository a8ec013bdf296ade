#pragma once
// Several prepared sources as one, and the account of what has been drawn from each.
//
// The order of a mixture depends on data, weights, seed and position alone. Each source keeps a cursor of its own, so
// that a mix may change while a run goes on: a source that stays goes on where it was, one that leaves can come back.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/interleave.h"

namespace athanor {

/// A place in a source: epoch `epoch`, of whose permutation `next` instances have been used.
struct DataCursor {
  int64_t epoch = 0;
  int64_t next = 0;
  bool operator==(const DataCursor&) const = default;
};

/// What a run has drawn from a source.
struct SourceAccount {
  std::string name;
  int64_t num_instances = 0, seq_len = 0;  ///< the source's own
  DataCursor cursor;                       ///< the next instance
  int64_t drawn = 0;                       ///< instances in all

  /// Where the source grew in the epoch underway: how many instances it had before, each time. Those added follow, in
  /// an order of their own, when those before have been drawn; the next epoch shuffles all of them.
  std::vector<int64_t> grown_from;

  int64_t tokens_drawn() const { return drawn * seq_len; }
  bool operator==(const SourceAccount&) const = default;
};

/// The whole state of the data. Keys are Dataset::content_hash(): what a source is, wherever it lies.
struct DataLedger {
  struct Share {
    int64_t weight = 0;  ///< Interleave::weights()
    int64_t drawn = 0;   ///< instances since this mix began
    bool operator==(const Share&) const = default;
  };
  std::map<std::string, SourceAccount> sources;  ///< all that were ever drawn from
  std::map<std::string, Share> mix;              ///< the mix underway
  bool operator==(const DataLedger&) const = default;
};

/// "web: epoch 0, instance 12 of 400; code: ..." of the mix underway.
std::string describe_position(const DataLedger& ledger);

struct MixtureSource {
  std::string name;
  Dataset dataset;
  double weight = 1;
  double max_epochs = 0;  ///< 0: no cap
};

class Mixture {
 public:
  /// Sources are put in the order of their content, so that the order they are listed in makes no difference.
  /// @throws DataError if two hold the same data, or differ in seq_len.
  explicit Mixture(std::vector<MixtureSource> sources);

  const std::vector<MixtureSource>& sources() const { return sources_; }
  const Interleave& interleave() const { return interleave_; }
  int64_t seq_len() const { return sources_.front().dataset.seq_len(); }

  /// The ledger with which this mix goes on after `ledger`: where the mix is the one underway it goes on in it, else it
  /// begins anew, with each source at its own cursor. A source to which files were added goes on too.
  /// @throws DataError if a name stands for other data than it did, or a cursor is no place in its source.
  DataLedger enter(const DataLedger& ledger) const;

 private:
  std::vector<MixtureSource> sources_;
  std::vector<std::string> hashes_;  // of each source
  Interleave interleave_;

  friend class MixturePosition;
};

/// One instance to be read: element `index` of the permutation (size, seed, name) of rows that begin at `first_row`.
struct Draw {
  size_t source;  ///< index into Mixture::sources()
  int64_t epoch;
  int64_t first_row, size;  ///< all rows of the source, or the part that it grew by
  int64_t index;
};

/// A walk along a mixture.
class MixturePosition {
 public:
  /// @param ledger  what Mixture::enter gave.
  MixturePosition(const Mixture& mixture, DataLedger ledger);
  Draw next();
  DataLedger ledger() const;

 private:
  const Mixture& mixture_;
  DataLedger begin_;
  std::vector<int64_t> drawn_;
  std::vector<SourceAccount> accounts_;
};

}  // namespace athanor
