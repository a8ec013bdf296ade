#include "prepare/replaced_folder.h"

#include <algorithm>

#include "base/error.h"
#include "dataset/manifest.h"
#include "dataset/prepared_folder.h"
#include "documents/standard_input.h"

namespace athanor::inline preparation {
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
  ATHANOR_CHECK(holds_prepared_data(out),
                "--out {} contains something other than prepared data (no {} of them); name another folder, or move it "
                "away",
                out.string(), kDataManifestName);
  ATHANOR_CHECK(overwrite, "--out {} is not empty; --overwrite replaces it", out.string());
  for (const auto& input : inputs) {
    if (is_standard_input(input)) continue;
    ATHANOR_CHECK(!lies_in(input, out), "the input {} is in --out {}, which would be replaced; name another folder",
                  input.string(), out.string());
  }
}

}  // namespace athanor::inline preparation
