#pragma once
// The data of a run: for each training phase its mixture and held-out data. They are opened when the run is started,
// and checked against the configuration before a step is taken.

#include <string>
#include <vector>

#include "checkpoint/team.h"
#include "config/training_stages.h"
#include "dataset/mixture.h"
#include "train/train_state.h"

namespace athanor::inline run {

struct ValidationSource {
  std::string name;
  double share = 1;  ///< share of the phase's mix, among the sources that have validation data; these add up to 1
  Dataset dataset;
};

struct StageData {
  TrainingStage stage;  ///< with seq_len resolved
  Mixture train;
  std::vector<ValidationSource> validation;  ///< one for each source that has validation data, by name
};

/// A file that has no checksums of blocks: it is compared with its checksum during the run.
struct UnverifiedFile {
  Dataset dataset;
  size_t index;  ///< in dataset.files()
};

struct RunData {
  std::vector<StageData> stages;           ///< one for each training phase, in order
  std::vector<UnverifiedFile> unverified;  ///< this member's share, if data.verify asks for it
};

/// Opens every source of every training phase, each folder once, and fills in sequence lengths that are 0, also in
/// `config`. The first member reads the manifests for all. The members divide the files among them by bytes, and each
/// checks that those of its share exist, with the right headers and sizes. Collective over `team`.
/// @throws ConfigError, or DataError naming the source or the first wrong file: the same error on all members.
RunData open_run_data(RunConfig& config, const Team& team = {});

/// Returns the identity that all sources have in common. @throws DataError naming two sources that differ.
DataIdentity data_identity(const std::vector<StageData>& stages);

/// Refuses a batch ramp that is not the one with which the run has come to `position`: the steps of its sizes follow
/// from the tokens of all steps before them. A ramp that is over may be any. @throws ConfigError with both numbers of
/// tokens.
void refuse_other_ramp(const std::vector<StageData>& stages, const RunPosition& position);

/// The instances that the run is going to draw, compared with those available.
struct Supply {
  std::vector<std::string> lines;      ///< a line for each training phase and source, for people
  std::vector<std::string> shortages;  ///< a line for each source whose share needs more epochs than its max_epochs
  /// The same for each source that had enough for the steps, and lacks it only since batches were passed over.
  std::vector<std::string> short_by_skips;

  /// @throws DataError with all shortages, if there are any.
  void refuse_shortages() const;
};

/// Plans the supply of the updates after `position`, whose ledger contains what has been drawn so far. No source gives
/// more than planned; with three sources or more, one may give an instance less.
/// @param config  the whole run's.
/// @throws DataError if a source's name now refers to other data than the ledger records (Mixture::enter).
Supply plan_supply(const std::vector<StageData>& stages, const RunConfig& config, const RunPosition& position);

/// Returns which source of the mix has given more than its max_epochs allow in the ledger `next`; "" if none has.
std::string describe_excess(const Mixture& mixture, const DataLedger& next);

}  // namespace athanor::inline run
