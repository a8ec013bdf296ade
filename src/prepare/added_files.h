#pragma once
// Adds files to a folder of prepared data without preparing the rest again.

#include "prepare/prepare_job.h"

namespace athanor::inline preparation {

/// Plans `athanor prepare --add` for options.out. Tokenizer and settings are those of the folder; the files are those
/// that the folder does not have yet, possibly none. The sizes of the present shards are compared with the manifest.
/// @throws ConfigError if an option differs from the folder's, with both values; DataError for a folder that is damaged
///         or too old, and for an input that has changed since it was added.
PrepareJob plan_addition(const PrepareOptions& options);

}  // namespace athanor::inline preparation
