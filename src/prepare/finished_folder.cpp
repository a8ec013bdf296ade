#include "prepare/finished_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/fault.h"
#include "base/files.h"
#include "base/hash.h"

namespace athanor::inline preparation {
namespace fs = std::filesystem;

namespace {

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

void sync_folder(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_errno("cannot open", path.string());
  ::fsync(fd);
  ::close(fd);
}

void rename_to(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_errno("cannot rename " + from.string() + " to", to.string());
}

bool holds(const fs::path& folder, const std::string& manifest_hash) {
  std::error_code ignored;
  const auto file = folder / kDataManifestName;
  return fs::exists(file, ignored) && hash_file(file) == manifest_hash;
}

// There is a whole folder at `out` at every moment if the file system can exchange two; otherwise there is one moment
// without it.
void put_in_place(const fs::path& data, const fs::path& out, const fs::path& partial) {
  std::error_code ignored;
  if (!fs::exists(out, ignored) || fs::is_empty(out, ignored)) {
    rename_to(data, out);
  } else if (::renameat2(AT_FDCWD, data.c_str(), AT_FDCWD, out.c_str(), RENAME_EXCHANGE) != 0) {
    const auto aside = partial / "replaced";
    rename_to(out, aside);
    try {
      rename_to(data, out);
    } catch (...) {
      fs::rename(aside, out, ignored);
      throw;
    }
  }
  sync_folder(parent_of(out));
}

void remove_old_remainders(const fs::path& out, const DataManifest& manifest) {
  for (const auto& entry : fs::directory_iterator(out)) {
    const auto name = entry.path().filename().string();
    const bool is_ours = manifest.remainder && name == manifest.remainder->file;
    std::error_code ignored;
    if (name.starts_with("remainder-") && !is_ours) fs::remove(entry.path(), ignored);
  }
}

void finish(const fs::path& out, PartialFolder& partial, const DataManifest& manifest) {
  fault_point("prepare.committed");
  remove_old_remainders(out, manifest);
  partial.remove();
}

void move_new_files(const fs::path& data, const fs::path& out) {
  for (const auto& entry : fs::directory_iterator(data)) {
    rename_to(entry.path(), out / entry.path().filename());
    fault_point("prepare.moved");
  }
  sync_folder(out);
}

}  // namespace

void commit_finished(const fs::path& given_out, PartialFolder& partial, const DataManifest& manifest,
                     const PrepareJob& job, PrepareJournal& journal) {
  const auto out = PartialFolder::resolve(given_out);
  const auto text = data_manifest_text(manifest);
  if (job.adds()) {
    fault_point("prepare.before_commit");
    move_new_files(partial.data(), out);
    journal.commit(hash_hex(text));
    write_file_atomically(out / kDataManifestName, text);
  } else {
    write_file_atomically(partial.data() / manifest.tokenizer_file, job.tokenizer.file_bytes());
    write_file_atomically(partial.data() / kDataManifestName, text);
    fault_point("prepare.before_commit");
    journal.commit(hash_hex(text));
    put_in_place(partial.data(), out, partial.path());
  }
  finish(out, partial, manifest);
}

std::optional<DataManifest> finish_committed(const fs::path& given_out, PartialFolder& partial) {
  const auto out = PartialFolder::resolve(given_out);
  const auto hash = PrepareJournal::committed(partial.journal());
  if (!hash) return std::nullopt;
  std::error_code ignored;
  if (!fs::exists(out, ignored) && holds(partial.data(), *hash)) put_in_place(partial.data(), out, partial.path());
  if (!holds(out, *hash)) return std::nullopt;
  const auto manifest = read_data_manifest(out);
  finish(out, partial, manifest);
  return manifest;
}

}  // namespace athanor::inline preparation
