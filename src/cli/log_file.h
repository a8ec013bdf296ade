#pragma once
// The log of a job as a stream of bytes, compressed or not.

#include <memory>
#include <string>

#include "documents/byte_source.h"

namespace athanor::inline cli {

/// Opens a log by its name, or standard input for "-". Compression (gzip, zstd) is recognised by the first bytes, not
/// by the name. Compressed standard input is kept in memory, compressed. @throws IoError.
std::unique_ptr<ByteSource> open_log(const std::string& name);

}  // namespace athanor::inline cli
