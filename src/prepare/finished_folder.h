#pragma once
// The last step of preparing: moves the content of the partial folder to `out`, in one step that a crash cannot leave
// half done.

#include <filesystem>
#include <optional>

#include "dataset/manifest.h"
#include "prepare/partial_folder.h"
#include "prepare/prepare_job.h"
#include "prepare/prepare_journal.h"

namespace athanor {

/// Replaces `out` by a new folder, or puts the new files next to the present ones; then removes the partial folder.
/// If files are added, the manifest changes last: until then the new files are not part of the data.
/// @throws IoError; the data in `out` are then still there.
void commit_finished(const std::filesystem::path& out, PartialFolder& partial, const DataManifest& manifest,
                     const PrepareJob& job, PrepareJournal& journal);

/// Finishes the commit of an earlier call that ended just after or during its commit.
/// @return the manifest that is then in `out`; none if there is no such call.
std::optional<DataManifest> finish_committed(const std::filesystem::path& out, PartialFolder& partial);

}  // namespace athanor
