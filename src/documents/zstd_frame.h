#pragma once
// The header of a zstd frame (RFC 8878, section 3.1.1.1): the window that decompressing it keeps in memory, and its
// dictionary. libzstd's own function for it is not part of its stable interface.

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace athanor::inline documents {

struct ZstdFrame {
  uint64_t window = 0;  ///< bytes
  uint32_t dictionary_id = 0;
};

/// Parses the frame that `bytes` begin with. All is 0 if they are no frame, or end inside its header.
ZstdFrame parse_zstd_frame(std::string_view bytes);

/// Returns the window of a file's first frame that has content; 0 if there is none. Later frames may have others.
uint64_t first_zstd_window(const std::filesystem::path& file);

}  // namespace athanor::inline documents
