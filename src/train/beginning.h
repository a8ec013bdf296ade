#pragma once
// Where a run goes on from: what its folder holds, what checkpoint.resume asks for, and what has happened before.
//
// A folder that holds anything of a run is resumed or refused, never overwritten. With "auto" that is its newest full
// checkpoint that verifies; where it keeps none, its newest model-only one, with fresh moments; where nothing was ever
// saved, step 0 again. A path in another folder is where a run begins; once it has saved something of its own it goes
// on from that. A path in its own folder means going back: what is newer is moved aside, not deleted. The same command
// given again goes on from what was saved since.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor {

struct Beginning {
  enum class From {
    kNothing,  ///< step 0: fresh, or model.from
    kNewest,   ///< the newest full checkpoint of its own that verifies
    kPath,     ///< `path`, a full checkpoint or a model-only one
  };
  From from = From::kNothing;
  std::filesystem::path path;
  std::string asked;                             ///< checkpoint.resume as a place inside the folder, where it is taken
  std::vector<std::filesystem::path> abandoned;  ///< of its own, newer than `path`: to be moved aside
  std::filesystem::path older;                   ///< the model before, where `path` is the run's newest
  bool anew = false;                             ///< not from the newest of its own: another course begins there
  int64_t attempt = 1;                           ///< of this start
  std::vector<std::string> notes;                ///< for the log: what was passed over, and why

  std::string to_text() const;
  static Beginning from_text(const std::string& text);
};

/// Looks, and changes nothing. For one rank: folders of a network need not look alike to all at one moment.
/// @throws ConfigError, CheckpointError for a folder that is to be left alone, or a path that is no checkpoint.
Beginning plan_beginning(const RunConfig& config);

}  // namespace athanor
