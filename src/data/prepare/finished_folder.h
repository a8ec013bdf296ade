#pragma once
// The last step of preparing: what lies in the partial folder becomes what `out` holds, in one step that a crash cannot
// halve.

#include <filesystem>
#include <optional>

#include "data/manifest.h"
#include "data/prepare/partial_folder.h"
#include "data/prepare/prepare_job.h"
#include "data/prepare/prepare_journal.h"

namespace athanor {

/// Puts a new folder in the place of `out`, or the new files beside those that are there; then the partial folder goes.
/// With files that are added, the manifest changes last: until then they are not part of the data.
/// @throws IoError; what was in `out` is then still there.
void commit_finished(const std::filesystem::path& out, PartialFolder& partial, const DataManifest& manifest,
                     const PrepareJob& job, PrepareJournal& journal);

/// If an earlier run was ended just after or in the midst of its commit, finishes that.
/// @return what is in `out` then; none if there is no such run.
std::optional<DataManifest> finish_committed(const std::filesystem::path& out, PartialFolder& partial);

}  // namespace athanor
