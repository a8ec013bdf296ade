#include "prepare/token_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"

namespace athanor::inline preparation {
namespace {

// Returns false if the file ends before.
bool read_at(int fd, const std::filesystem::path& path, uint64_t offset, std::byte* out, size_t length) {
  while (length > 0) {
    const ssize_t got = ::pread(fd, out, length, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("cannot read", path.string());
    if (got == 0) return false;
    out += got;
    offset += static_cast<uint64_t>(got);
    length -= static_cast<size_t>(got);
  }
  return true;
}

uint64_t hash_of(const void* bytes, size_t length) {
  return hash_u64(std::string_view(static_cast<const char*>(bytes), length));
}

}  // namespace

TokenStream::TokenStream(std::filesystem::path path, int item_bytes)
    : path_(std::move(path)), item_bytes_(item_bytes), fd_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail_errno("cannot create", path_.string());
  struct stat status {};
  if (::fstat(fd_, &status) == 0) bytes_at_open_ = static_cast<uint64_t>(status.st_size);
}

TokenStream::~TokenStream() { ::close(fd_); }

TokenStream::Place TokenStream::append(uint32_t file, uint32_t chunk, std::span<const uint32_t> tokens) {
  if (tokens.empty()) return {};
  std::vector<uint16_t> narrow;
  if (item_bytes_ == 2) narrow.assign(tokens.begin(), tokens.end());
  const auto* bytes =
      item_bytes_ == 2 ? reinterpret_cast<const char*>(narrow.data()) : reinterpret_cast<const char*>(tokens.data());
  const uint64_t length = tokens.size() * static_cast<size_t>(item_bytes_);
  Place place{0, hash_of(bytes, length)};
  {
    const std::lock_guard lock(mutex_);
    place.offset = std::exchange(num_bytes_, num_bytes_ + length);
    chunks_.push_back({file, chunk, static_cast<uint32_t>(tokens.size()), 0, place});
  }
  errno = fault_errno("files.write");
  if (errno != 0) fail_errno("cannot write", path_.string());
  for (uint64_t done = 0; done < length;) {
    const ssize_t put = ::pwrite(fd_, bytes + done, length - done, static_cast<off_t>(place.offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno("cannot write", path_.string());
    done += static_cast<uint64_t>(put);
  }
  return place;
}

void TokenStream::adopt(uint32_t file, uint32_t chunk, uint32_t num_tokens, Place place) {
  if (num_tokens == 0) return;
  chunks_.push_back({file, chunk, num_tokens, 0, place});
  num_bytes_ = std::max(num_bytes_, place.offset + uint64_t{num_tokens} * static_cast<uint64_t>(item_bytes_));
  missing_ |= num_bytes_ > bytes_at_open_;
}

bool TokenStream::is_whole(uint32_t num_tokens, Place place) const {
  if (num_tokens == 0) return true;
  std::vector<std::byte> bytes(size_t{num_tokens} * static_cast<size_t>(item_bytes_));
  return read_at(fd_, path_, place.offset, bytes.data(), bytes.size()) &&
         hash_of(bytes.data(), bytes.size()) == place.hash;
}

void TokenStream::sync() const {
  if (::fdatasync(fd_) != 0 && errno != EINVAL) fail_errno("cannot sync", path_.string());
}

void TokenStream::finish() {
  std::sort(chunks_.begin(), chunks_.end(),
            [](const Chunk& a, const Chunk& b) { return std::tie(a.file, a.chunk) < std::tie(b.file, b.chunk); });
  num_tokens_ = 0;
  for (auto& chunk : chunks_) chunk.first_token = std::exchange(num_tokens_, num_tokens_ + chunk.num_tokens);
}

std::string TokenStream::digest() const {
  Hasher hasher;
  for (const auto& chunk : chunks_) {
    hasher.update(&chunk.num_tokens, sizeof(chunk.num_tokens));
    hasher.update(&chunk.place.hash, sizeof(chunk.place.hash));
  }
  return hasher.hex();
}

void TokenStream::copy(int64_t first, int64_t count, std::byte* out) const {
  ATHANOR_ASSERT(first >= 0 && count >= 0 && first + count <= num_tokens_);
  if (count == 0) return;
  auto at = std::prev(std::upper_bound(chunks_.begin(), chunks_.end(), first,
                                       [](int64_t token, const Chunk& chunk) { return token < chunk.first_token; }));
  for (; count > 0; ++at) {
    const int64_t skip = first - at->first_token;
    const int64_t take = std::min(count, at->num_tokens - skip);
    const auto num_bytes = static_cast<size_t>(take * item_bytes_);
    const uint64_t offset = at->place.offset + static_cast<uint64_t>(skip * item_bytes_);
    if (!read_at(fd_, path_, offset, out, num_bytes)) {
      throw IoError(fmt::format("{} ends before byte {}: it was changed; throw the unfinished work away with --restart",
                                path_.string(), offset + num_bytes),
                    EIO);
    }
    out += num_bytes;
    first += take;
    count -= take;
  }
}

void TokenStream::remove() {
  if (::ftruncate(fd_, 0) != 0) fail_errno("cannot truncate", path_.string());
  missing_ = true;
}

}  // namespace athanor::inline preparation
