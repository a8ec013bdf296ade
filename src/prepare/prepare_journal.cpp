#include "prepare/prepare_journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "documents/standard_input.h"

namespace athanor::inline preparation {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "athanor-prepare";
constexpr int kVersion = 1;
constexpr size_t kEndBytes = size_t{1} << 16;  // bytes of a file's beginning and end, for its fingerprint

std::string differences(const json& before, const json& now) {
  std::vector<std::string> parts;
  std::set<std::string> names;
  for (const auto& [name, value] : before.items()) names.insert(name);
  for (const auto& [name, value] : now.items()) names.insert(name);
  for (const auto& name : names) {
    const json old_value = before.value(name, json()), new_value = now.value(name, json());
    if (old_value != new_value)
      parts.push_back(fmt::format("{} {} there, {} now", name, old_value.dump(), new_value.dump()));
  }
  return join(parts);
}

// What a pipe holds is not known before it is read: it never counts as what an earlier call has read.
InputFile new_standard_input(const std::filesystem::path& path) {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return {path, -1, hash_hex(fmt::format("{}\n{}\n{}", path.string(), ::getpid(), now))};
}

}  // namespace

InputFile look_at_input(const std::filesystem::path& path) {
  if (is_standard_input(path)) return new_standard_input(path);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail_errno("cannot stat", path.string());
  const bool regular = S_ISREG(status.st_mode);
  const auto text =
      fmt::format("{}\n{}\n{}.{:09}", path.string(), status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  return {path, regular ? static_cast<int64_t>(status.st_size) : -1, hash_hex(text)};
}

std::string file_fingerprint(const std::filesystem::path& path) {
  if (is_standard_input(path)) return "";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_errno("cannot open", path.string());
  struct stat status {};
  std::string fingerprint;
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    Hasher hasher;
    std::array<char, kEndBytes> bytes;
    for (const auto at : {off_t{0}, std::max(off_t{0}, status.st_size - static_cast<off_t>(kEndBytes))}) {
      const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), at);
      if (got > 0) hasher.update(bytes.data(), static_cast<size_t>(got));
    }
    fingerprint = hasher.hex();
  }
  ::close(fd);
  return fingerprint;
}

void DocumentCounts::add(const DocumentCounts& other) {
  documents += other.documents;
  tokens += other.tokens;
  text_bytes += other.text_bytes;
  with_special_tokens += other.with_special_tokens;
  for (const auto& [cause, count] : other.skipped) skipped[cause] += count;
}

PrepareJournal::PrepareJournal(std::filesystem::path path, const json& options, const IsWhole& is_whole) {
  std::optional<json> head;
  bool has_work = false;
  Journal::read(path, [&](const json& line) {
    if (!head) head = line;
    has_work |= line.contains("chunk");
    if (line.contains("synced")) num_synced_ = line.at("synced").get<uint64_t>();
    return true;
  });
  const json expected{{"format", kFormat}, {"version", kVersion}, {"options", options}};
  if (head && *head != expected && has_work) {
    const bool known = head->value("format", "") == kFormat && head->value("version", 0) == kVersion;
    fail<ConfigError>("{} holds unfinished work of {}; finish that, or delete it with --restart",
                      path.parent_path().string(),
                      known ? "a run with other options (" + differences(head->at("options"), options) + ")"
                            : "another version of this program");
  }
  if (head == expected) {
    replay(path, is_whole);
    journal_.emplace(path);
    return;
  }
  std::filesystem::remove(path);
  journal_.emplace(path);
  journal_->append(expected);
}

// Lines that are torn or damaged, or whose tokens are not in the spill, are removed from the journal, so that it is
// whole from its beginning on.
void PrepareJournal::replay(const std::filesystem::path& path, const IsWhole& is_whole) {
  std::vector<bool> kept;
  const bool all_whole = Journal::read(path, [&](const json& line) {
    kept.push_back(apply(line, is_whole));
    return kept.back();
  });
  if (all_whole) return;
  size_t line_idx = 0;
  Journal::rewrite(path, [&](const json& line) {
    const bool counts_lines = line.contains("synced");  // some of the lines may be lost
    return kept[line_idx++] && !counts_lines;
  });
}

bool PrepareJournal::apply(const json& line, const IsWhole& is_whole) {
  if (line.contains("chunk")) return apply_chunk(line, is_whole);
  if (line.contains("file")) {
    const auto& key = keys_.emplace_back(line.at("file").get<std::string>());
    ids_[key] = keys_.size() - 1;
    files_[key] = FileProgress();
    files_[key].fingerprint = line.at("fingerprint").get<std::string>();
  } else if (line.contains("end")) {
    files_[keys_.at(line.at("end").get<size_t>())].num_chunks = line.at("chunks").get<uint32_t>();
  } else if (line.contains("gather")) {
    set_gather(line.at("gather").get<std::string>(), line.at("rows_per_bucket").get<int64_t>(),
               line.at("buckets_per_pass").get<int64_t>());
  } else if (line.contains("scattered")) {
    gather_.scattered.insert(line.at("scattered").get<int64_t>());
  } else if (line.contains("shard")) {
    gather_.shards[line.at("shard").get<std::string>()] = {line.at("hash").get<std::string>(),
                                                           line.value("blocks", std::vector<HashWords>())};
  }
  return true;
}

bool PrepareJournal::apply_chunk(const json& line, const IsWhole& is_whole) {
  const auto& fields = line.at("chunk");
  const SpilledChunk chunk{fields.at(1).get<uint32_t>(), fields.at(3).get<uint32_t>(), fields.at(2).get<uint64_t>(),
                           line.at("hash").get<uint64_t>()};
  if (num_chunks_++ >= num_synced_ && !is_whole(chunk)) return false;
  DocumentCounts counts{fields.at(4).get<int64_t>(),
                        chunk.num_tokens,
                        fields.at(5).get<int64_t>(),
                        {},
                        line.value("special", int64_t{0})};
  if (line.contains("skipped")) counts.skipped = line.at("skipped").get<SkipCounts>();
  auto& file = files_[keys_.at(fields.at(0).get<size_t>())];
  file.counts.add(counts);
  file.chunks.push_back(chunk);
  text_bytes_ += counts.text_bytes;
  return true;
}

std::optional<std::string> PrepareJournal::committed(const std::filesystem::path& path) {
  std::optional<std::string> hash;
  Journal::read(path, [&](const json& line) {
    if (line.contains("commit")) hash = line.at("commit").get<std::string>();
    return true;
  });
  return hash;
}

const FileProgress* PrepareJournal::file(const std::string& key) const {
  const auto found = files_.find(key);
  return found == files_.end() ? nullptr : &found->second;
}

void PrepareJournal::begin_file(const InputFile& file, const std::string& fingerprint) {
  const std::lock_guard lock(mutex_);
  ids_[file.key] = keys_.size();
  keys_.push_back(file.key);
  journal_->append({{"file", file.key}, {"path", file.path.string()}, {"fingerprint", fingerprint}});
}

void PrepareJournal::add_chunk(const std::string& key, const SpilledChunk& chunk, const DocumentCounts& counts) {
  const std::lock_guard lock(mutex_);
  json line{{"chunk", {ids_.at(key), chunk.chunk, chunk.offset, chunk.num_tokens, counts.documents, counts.text_bytes}},
            {"hash", chunk.hash}};
  if (!counts.skipped.empty()) line["skipped"] = counts.skipped;
  if (counts.with_special_tokens > 0) line["special"] = counts.with_special_tokens;
  journal_->append(line);
  ++num_chunks_;
  text_bytes_ += counts.text_bytes;
}

void PrepareJournal::end_file(const std::string& key, uint32_t num_chunks) {
  const std::lock_guard lock(mutex_);
  journal_->append({{"end", ids_.at(key)}, {"chunks", num_chunks}});
}

void PrepareJournal::sync(const std::function<void()>& sync_spill) {
  std::unique_lock lock(mutex_);
  const uint64_t num_chunks = num_chunks_;
  lock.unlock();
  sync_spill();
  lock.lock();
  journal_->append({{"synced", num_chunks}});
  journal_->sync();
}

// Shards depend on the stream alone; bucket files also depend on where buckets end.
void PrepareJournal::set_gather(const std::string& stream, int64_t rows_per_bucket, int64_t buckets_per_pass) {
  if (gather_.stream != stream) gather_.shards.clear();
  gather_.stream = stream;
  gather_.rows_per_bucket = rows_per_bucket;
  gather_.buckets_per_pass = buckets_per_pass;
  gather_.scattered.clear();
}

void PrepareJournal::begin_gather(const std::string& stream, int64_t rows_per_bucket, int64_t buckets_per_pass) {
  const std::lock_guard lock(mutex_);
  set_gather(stream, rows_per_bucket, buckets_per_pass);
  journal_->append({{"gather", stream}, {"rows_per_bucket", rows_per_bucket}, {"buckets_per_pass", buckets_per_pass}});
}

void PrepareJournal::add_scattered(int64_t pass) {
  const std::lock_guard lock(mutex_);
  gather_.scattered.insert(pass);
  journal_->append({{"scattered", pass}});
  journal_->sync();
}

void PrepareJournal::add_shard(const std::string& file, const FinishedShard& shard) {
  const std::lock_guard lock(mutex_);
  gather_.shards[file] = shard;
  journal_->append({{"shard", file}, {"hash", shard.hash}, {"blocks", shard.blocks}});
}

void PrepareJournal::commit(const std::string& manifest_hash) {
  const std::lock_guard lock(mutex_);
  journal_->append({{"commit", manifest_hash}});
  journal_->sync();
}

}  // namespace athanor::inline preparation
