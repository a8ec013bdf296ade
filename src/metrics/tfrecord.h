#pragma once
// The framing of TensorFlow's record files, which TensorBoard reads: each record is
//
//   length u64 | masked CRC-32C of the length u32 | payload | masked CRC-32C of the payload u32      little-endian

#include <cstdint>
#include <string>
#include <string_view>

namespace athanor::inline metrics {

/// Returns the CRC-32C (Castagnoli), RFC 3720 appendix B.4.
uint32_t crc32c(std::string_view bytes);

/// Returns the CRC as it is stored: rotated and shifted, so that a checksum over bytes that contain checksums stays
/// sound.
uint32_t masked_crc32c(std::string_view bytes);

/// Returns the record of a payload.
std::string frame_record(std::string_view payload);

}  // namespace athanor::inline metrics
