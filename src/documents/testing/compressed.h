#pragma once
// For tests: compressed bytes.

#include <zlib.h>
#include <zstd.h>

#include <cstdint>
#include <string>

namespace athanor::inline documents {

inline std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

inline std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const auto context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

/// A zstd frame with one block that is not compressed. Its window is 1 KiB · 2^(window_byte / 8), and an eighth of that
/// for each of window_byte % 8.
inline std::string zstd_frame(const std::string& text, unsigned char window_byte, unsigned char dictionary_id = 0) {
  std::string out("\x28\xB5\x2F\xFD");
  out += dictionary_id ? '\x01' : '\0';
  out += static_cast<char>(window_byte);
  if (dictionary_id) out += static_cast<char>(dictionary_id);
  const auto block = static_cast<uint32_t>(text.size() << 3 | 1);  // the last block
  for (int shift = 0; shift < 24; shift += 8) out += static_cast<char>(block >> shift);
  return out + text;
}

}  // namespace athanor::inline documents
