#pragma once
// Mixtures: several prepared sources drawn as one, with a ledger of what has been drawn from each.
//
// The order of a mixture depends on data, weights, seed and position alone. Each source has a separate cursor, so that
// the mix may change during a run: a source that stays continues at its cursor, and one that leaves can come back.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dataset/dataset.h"
#include "dataset/epoch_order.h"
#include "dataset/interleave.h"

namespace athanor::inline dataset {

/// A position in a source: in epoch `epoch`, the first `next` instances of the permutation have been used.
struct DataCursor {
  int64_t epoch = 0;
  int64_t next = 0;
  bool operator==(const DataCursor&) const = default;
};

/// The account of what a run has drawn from one source.
struct SourceAccount {
  std::string name;
  int64_t num_instances = 0, seq_len = 0;  ///< size of the source: instances, and tokens in each
  DataCursor cursor;                       ///< position of the next instance
  int64_t drawn = 0;                       ///< instances drawn in total, over all epochs and mixes

  /// If files were added to the source during the current epoch: the number of instances before each addition. The
  /// added instances follow, in a separate order, after those before them have been drawn; the next epoch has one order
  /// of all of them.
  std::vector<int64_t> grown_from;

  int64_t tokens_drawn() const { return drawn * seq_len; }
  bool operator==(const SourceAccount&) const = default;
};

/// The complete state of the data. The maps are keyed by Dataset::content_hash(), which identifies the data wherever it
/// is stored.
struct DataLedger {
  struct Share {
    int64_t weight = 0;  ///< Interleave::weights()
    int64_t drawn = 0;   ///< instances drawn since this mix began
    bool operator==(const Share&) const = default;
  };
  std::map<std::string, SourceAccount> sources;  ///< all sources that were ever drawn from
  std::map<std::string, Share> mix;              ///< the current mix
  DataOrder order = DataOrder::kBlocks;          ///< order of each epoch, which a run never changes
  bool operator==(const DataLedger&) const = default;
};

/// Returns the position in the current mix: "web: epoch 0, instance 12 of 400; code: ...".
std::string describe_position(const DataLedger& ledger);

struct MixtureSource {
  std::string name;
  Dataset dataset;
  double weight = 1;
  double max_epochs = 0;  ///< 0: no cap. Nothing in this file enforces it; run/run_data.h does, before step 1
};

class Mixture {
 public:
  /// Sorts the sources by content, so that the order in which they are listed makes no difference.
  /// @throws DataError if two sources hold the same data, or differ in seq_len; ConfigError for a weight that is not
  ///         above 0, or if there are no sources.
  explicit Mixture(std::vector<MixtureSource> sources);

  const std::vector<MixtureSource>& sources() const { return sources_; }
  const Interleave& interleave() const { return interleave_; }
  int64_t seq_len() const { return sources_.front().dataset.seq_len(); }

  /// Returns the ledger with which this mix continues after `ledger`. If this mix is the current one of `ledger`, it
  /// continues; else it begins anew, with each source at its cursor. A source to which files were added continues too.
  /// @throws DataError if a name denotes other data than before, or a cursor is not a position in its source.
  DataLedger enter(const DataLedger& ledger) const;

 private:
  std::vector<MixtureSource> sources_;
  std::vector<std::string> hashes_;  // content hash of each source
  Interleave interleave_;

  friend class MixturePosition;
};

/// One instance to read: element `index` of the order of a stretch of a source's rows (EpochOrder).
struct Draw {
  size_t source;  ///< index into Mixture::sources()
  Stretch stretch;
  int64_t index;
};

/// Draws the instances of a mixture, which must outlive this, in order.
class MixturePosition {
 public:
  /// @param ledger  the result of Mixture::enter.
  MixturePosition(const Mixture& mixture, DataLedger ledger);
  /// Returns the next instance, and moves past it.
  Draw next();
  /// Returns the ledger after all instances so far.
  DataLedger ledger() const;

 private:
  const Mixture& mixture_;
  DataLedger begin_;
  std::vector<int64_t> drawn_;
  std::vector<SourceAccount> accounts_;
};

}  // namespace athanor::inline dataset
