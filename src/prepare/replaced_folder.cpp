#include "prepare/replaced_folder.h"

#include <algorithm>

#include "base/error.h"
#include "dataset/manifest.h"
#include "documents/standard_input.h"

namespace athanor {
namespace fs = std::filesystem;

namespace {

bool lies_in(const fs::path& path, const fs::path& folder) {
  const auto whole = fs::weakly_canonical(path), base = fs::weakly_canonical(folder);
  const auto [in_base, in_whole] = std::mismatch(base.begin(), base.end(), whole.begin(), whole.end());
  return in_base == base.end();
}

}  // namespace

void check_replaceable(const fs::path& out, bool overwrite, const std::vector<fs::path>& inputs) {
  if (!fs::exists(out)) return;
  ATHANOR_CHECK(fs::is_directory(out), "--out {} is a file; name a folder", out.string());
  if (fs::is_empty(out)) return;
  ATHANOR_CHECK(overwrite, "--out {} is not empty; --overwrite replaces it", out.string());
  ATHANOR_CHECK(
      fs::exists(out / kDataManifestName),
      "--out {} contains something other than prepared data (no {}); name another folder, or remove it yourself",
      out.string(), kDataManifestName);
  for (const auto& input : inputs) {
    if (is_standard_input(input)) continue;
    ATHANOR_CHECK(!lies_in(input, out), "the input {} is in --out {}, which would be replaced; name another folder",
                  input.string(), out.string());
  }
}

}  // namespace athanor
