#pragma once
// The bytes of TensorBoard's event files: TensorFlow's records, each with a protobuf message in it. A record is
//
//   length u64 | masked CRC-32C of the length u32 | payload | masked CRC-32C of the payload u32      little-endian

#include <bit>
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

namespace protobuf {

/// A message, written by hand, since an event file needs only a few. It is in the wire format: (field number << 3 |
/// wire type), then the value. Fields are added in any order.
class Message {
 public:
  Message& integer(int field, uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  Message& float64(int field, double value) { return fixed(field, 1, std::bit_cast<uint64_t>(value), 8); }
  Message& float32(int field, float value) { return fixed(field, 5, std::bit_cast<uint32_t>(value), 4); }
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    wire_ += value;
    return *this;
  }
  const std::string& wire() const { return wire_; }

 private:
  void key(int field, int wire_type) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) wire_ += static_cast<char>((value & 0x7F) | 0x80);
    wire_ += static_cast<char>(value);
  }
  Message& fixed(int field, int wire_type, uint64_t bits, int num_bytes) {
    key(field, wire_type);
    for (int i = 0; i < num_bytes; ++i) wire_ += static_cast<char>(bits >> (8 * i) & 0xFF);
    return *this;
  }

  std::string wire_;
};

}  // namespace protobuf

}  // namespace athanor::inline metrics
