#pragma once
// Loads a checkpoint as a team, and verifies it in the same pass over its files (reader.h, load_plan.h).

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/reader.h"
#include "checkpoint/team.h"

namespace athanor::inline checkpoint {

/// Fills this member's targets, and compares the hash of every piece: of a piece that a target of one member holds, in
/// the pass that fills the target. Collective.
/// @return the same on every member: the first element of any target that is not finite; none if all are finite.
/// @throws the same Error on every member (Team::on_all), naming what is damaged. Targets may then be half filled.
std::optional<NotFinite> load_verified(const CheckpointReader& checkpoint, const std::vector<TargetView>& targets,
                                       const Team& team = {});

/// Fills this member's targets, and compares the hash of every piece that it reads for them: members may see other
/// copies of a file. Reads no other piece or file. Collective.
/// @param damage  set to the files of this member that are damaged or cannot be read.
/// @return as load_verified.
/// @throws the same Error on every member, if one found damage. Targets may then be half filled.
std::optional<NotFinite> load_needed(const CheckpointReader& checkpoint, const std::vector<TargetView>& targets,
                                     const Team& team, FileDamage& damage);

/// Calls `read`, which is collective and throws the same on every member. Returns false, after a warning, if it found
/// damage or could not read something.
/// @param unread  set to the system's reason if something could not be read (as opposed to being damaged).
bool passes(const std::function<void()>& read, const Team& team, std::optional<IoError>* unread = nullptr);

/// Opens a checkpoint, and verifies its manifest. Collective.
/// @param remedy  follows the message if it has a newer format.
/// @param unread  as for passes().
/// @return none, after a warning, if the manifest is damaged or cannot be read.
/// @throws CheckpointError on every member, if it has a newer format than this program reads: it may be in order, and
/// an older one has less progress.
std::optional<CheckpointReader> open_unless_damaged(const std::filesystem::path& path, const std::string& remedy,
                                                    const Team& team, std::optional<IoError>* unread);

/// Decides what to load from a checkpoint whose manifest has been checked. An exception refuses the whole load: the
/// checkpoint may be in order and does not fit. Called on every member.
using ChooseTargets = std::function<std::vector<TargetView>(const CheckpointReader& checkpoint)>;

/// Returns the first of what the members have found; the same on every member. Collective.
std::optional<NotFinite> agree_on_first(const std::optional<NotFinite>& own, const Team& team);

struct PutAside {
  std::filesystem::path path;  ///< as list_recoverable names it
  NotFinite first;
};

struct LoadedNewest {
  CheckpointReader checkpoint;  ///< the targets have its elements
  /// The newer one that was passed over because it is not finite; the caller has to rename it (put_aside, rotation.h).
  std::optional<PutAside> not_finite = {};
};

/// Loads the newest checkpoint (of list_recoverable) whose hashes are right. Passes over those that are damaged or
/// cannot be read, and over one that is not finite, with warnings that name them; returns nothing if every one is
/// damaged. Collective; all members get the same result. Changes nothing in the folder.
/// @throws the error of `choose`; CheckpointError if one has a newer format than this program reads, since older ones
/// have less progress. It is also thrown if a second one is not finite, or if one is not finite and none is left;
/// IoError if none is left and one could not be read.
std::optional<LoadedNewest> load_newest(const std::filesystem::path& folder, const ChooseTargets& choose,
                                        const Team& team = {});

}  // namespace athanor::inline checkpoint
