#include "data/token_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/fault.h"

namespace athanor {

TokenStream::TokenStream(std::filesystem::path path, int item_bytes)
    : path_(std::move(path)), item_bytes_(item_bytes),
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail_errno("cannot create", path_.string());
}

TokenStream::~TokenStream() {
  if (fd_ >= 0) ::close(fd_);
  ::unlink(path_.c_str());
}

void TokenStream::append(uint64_t file, uint64_t chunk, std::span<const uint32_t> tokens) {
  if (tokens.empty()) return;
  std::vector<uint16_t> narrow;
  if (item_bytes_ == 2) narrow.assign(tokens.begin(), tokens.end());
  const auto* bytes =
      item_bytes_ == 2 ? reinterpret_cast<const char*>(narrow.data()) : reinterpret_cast<const char*>(tokens.data());
  const uint64_t length = tokens.size() * static_cast<size_t>(item_bytes_);
  uint64_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    offset = std::exchange(num_bytes_, num_bytes_ + length);
    chunks_.push_back({file, chunk, static_cast<int64_t>(tokens.size()), 0, offset});
  }
  errno = fault_errno("files.write");
  if (errno != 0) fail_errno("cannot write", path_.string());
  for (uint64_t done = 0; done < length;) {
    const ssize_t put = ::pwrite(fd_, bytes + done, length - done, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno("cannot write", path_.string());
    done += static_cast<uint64_t>(put);
  }
}

void TokenStream::finish() {
  std::sort(chunks_.begin(), chunks_.end(),
            [](const Chunk& a, const Chunk& b) { return std::tie(a.file, a.chunk) < std::tie(b.file, b.chunk); });
  for (auto& chunk : chunks_) chunk.first_token = std::exchange(num_tokens_, num_tokens_ + chunk.num_tokens);
  if (::close(std::exchange(fd_, -1)) != 0) fail_errno("cannot close", path_.string());
  mapped_.emplace(path_);
}

void TokenStream::copy(int64_t first, int64_t count, std::byte* out) const {
  ATHANOR_ASSERT(mapped_ && first >= 0 && count >= 0 && first + count <= num_tokens_);
  auto at = std::prev(std::upper_bound(chunks_.begin(), chunks_.end(), first,
                                       [](int64_t token, const Chunk& chunk) { return token < chunk.first_token; }));
  for (; count > 0; ++at) {
    const int64_t skip = first - at->first_token;
    const int64_t take = std::min(count, at->num_tokens - skip);
    const auto num_bytes = static_cast<size_t>(take * item_bytes_);
    std::memcpy(out, mapped_->data() + at->byte_offset + static_cast<uint64_t>(skip * item_bytes_), num_bytes);
    out += num_bytes;
    first += take;
    count -= take;
  }
}

}  // namespace athanor
