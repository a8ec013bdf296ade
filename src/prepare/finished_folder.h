#pragma once
// The last step of preparing: the content of the partial folder becomes data of `out`. The data in `out` change at one
// moment, by one rename. A crash before this moment leaves the old data, and the next call continues the work. A crash
// after it leaves the new data, and the next call only removes what is no longer needed.

#include <filesystem>
#include <optional>

#include "dataset/manifest.h"
#include "prepare/partial_folder.h"
#include "prepare/prepare_job.h"
#include "prepare/prepare_journal.h"

namespace athanor::inline preparation {

/// If job.adds(), moves the new files into `out`, next to the present ones, and then replaces the manifest: until then
/// the new files are not part of the data. Otherwise completes the new folder with tokenizer and manifest and exchanges
/// it with `out`. (If the file system cannot exchange two folders, `out` is absent for a moment; finish_committed mends
/// a crash in it.) Then removes an old remainder and the partial folder.
/// @throws IoError; the data in `out` are then the old ones, or, if only the removal failed, the new ones.
void commit_finished(const std::filesystem::path& out, PartialFolder& partial, const DataManifest& manifest,
                     const PrepareJob& job, PrepareJournal& journal);

/// To be called before preparing. If an earlier call put its data in place but was killed before its last removal, does
/// the rest of it.
/// @return the manifest that is then in `out`; none if there was no such call, and the work has to be done or
///         continued.
std::optional<DataManifest> finish_committed(const std::filesystem::path& out, PartialFolder& partial);

}  // namespace athanor::inline preparation
