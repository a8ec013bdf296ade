#pragma once
// Adding files to a folder of prepared data without doing the rest again.

#include "data/prepare/prepare_job.h"

namespace athanor {

/// What `athanor prepare --add` is to do to options.out: its tokenizer and settings are those of the folder, its files
/// the ones that the folder has not yet; there may be none. The shards that are there are held against the manifest by
/// their sizes.
/// @throws ConfigError where an option says otherwise than the folder, with both values; DataError for a folder that is
///         damaged or too old, and for an input that has changed since it was added.
PrepareJob plan_addition(const PrepareOptions& options);

}  // namespace athanor
