#pragma once
// What a run reads: for each stage its mixture and what is held out, opened and held against the configuration before
// step 1.

#include <string>
#include <vector>

#include "checkpoint/team.h"
#include "config/training_stages.h"
#include "data/mixture.h"
#include "train/train_state.h"

namespace athanor {

struct ValidationSource {
  std::string name;
  double share = 1;  ///< of the stage's mix
  Dataset dataset;
};

struct StageData {
  TrainingStage stage;  ///< seq_len resolved
  Mixture train;
  std::vector<ValidationSource> validation;  ///< of the sources that have some
};

/// Opens every source of every stage, each folder once, and fills in sequence lengths that are 0, in `config` too. The
/// first member reads the manifests for all. The members share the files among them by bytes: each looks at the headers
/// of its share and, where data.verify says so, compares its files with their checksums.
/// Collective over `team`. @param worked  is told the bytes read, while the others wait.
/// @throws ConfigError, DataError naming the source or the first file that is not right: the same on all.
std::vector<StageData> open_run_data(RunConfig& config, const Team& team = {}, const Worked& worked = {});

/// What all sources have in common. @throws DataError naming two that differ.
DataIdentity data_identity(const std::vector<StageData>& stages);

/// What the run is going to draw, held against what there is.
struct Supply {
  std::vector<std::string> lines;      ///< each stage and source, for people
  std::vector<std::string> shortages;  ///< each source whose share needs more epochs than its max_epochs

  /// @throws DataError with all shortages, if there are some.
  void refuse_shortages() const;
};

/// From `step` on, with what `ledger` says has been drawn.
/// @throws DataError where a source's name stands for other data than the ledger says (Mixture::enter).
Supply plan_supply(const std::vector<StageData>& stages, const RunConfig& config, DataLedger ledger, int64_t step);

}  // namespace athanor
