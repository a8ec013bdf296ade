#include "documents/zstd_frame.h"

#include <array>
#include <fstream>

namespace athanor::inline documents {
namespace {

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

ZstdFrame parse_zstd_frame(std::string_view bytes) {
  constexpr std::string_view kMagic = "\x28\xB5\x2F\xFD";
  constexpr size_t kIdBytes[] = {0, 1, 2, 4}, kSizeBytes[] = {0, 2, 4, 8};
  if (!bytes.starts_with(kMagic) || bytes.size() <= kMagic.size()) return {};
  const auto descriptor = static_cast<unsigned char>(bytes[kMagic.size()]);
  const bool is_single_segment = descriptor >> 5 & 1;  // then the window is the content, and no byte states it
  const size_t size_bytes = descriptor >> 6 == 0 && is_single_segment ? 1 : kSizeBytes[descriptor >> 6];
  const size_t id_bytes = kIdBytes[descriptor & 3], window_bytes = is_single_segment ? 0 : 1;
  bytes.remove_prefix(kMagic.size() + 1);
  if (bytes.size() < window_bytes + id_bytes + size_bytes) return {};
  ZstdFrame frame;
  frame.dictionary_id = static_cast<uint32_t>(little_endian(bytes.substr(window_bytes, id_bytes)));
  if (is_single_segment) {
    constexpr uint64_t kTwoBytesBeginAt = 256;
    frame.window = little_endian(bytes.substr(id_bytes, size_bytes)) + (size_bytes == 2 ? kTwoBytesBeginAt : 0);
  } else {
    const auto window = static_cast<unsigned char>(bytes[0]);
    const uint64_t base = uint64_t{1} << (10 + (window >> 3));
    frame.window = base + base / 8 * (window & 7);
  }
  return frame;
}

uint64_t first_zstd_window(const std::filesystem::path& file) {
  constexpr std::streamoff kSkippableHeader = 8;  // its magic number, and the size of what follows
  std::ifstream in(file, std::ios::binary);
  std::array<char, 18> header;  // the longest one
  for (std::streamoff begin = 0; in.seekg(begin);) {
    in.read(header.data(), header.size());
    const std::string_view bytes(header.data(), static_cast<size_t>(in.gcount()));
    const bool is_skippable =
        bytes.size() >= kSkippableHeader && (bytes[0] & 0xF0) == 0x50 && bytes.substr(1, 3) == "\x2A\x4D\x18";
    if (!is_skippable) return parse_zstd_frame(bytes).window;
    in.clear();
    begin += kSkippableHeader + static_cast<std::streamoff>(little_endian(bytes.substr(4, 4)));
  }
  return 0;
}

}  // namespace athanor::inline documents
