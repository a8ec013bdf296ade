#include "checkpoint/step_words.h"

#include <string>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/rotation.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;

std::optional<int64_t> step_of_words(std::string_view text) {
  constexpr std::string_view kStep = "step-";
  constexpr size_t kMostDigits = 18;  // 10^18 - 1 is below 2^63
  if (text.starts_with(kStep)) text.remove_prefix(kStep.size());
  if (text.empty() || text.size() > kMostDigits || text.find_first_not_of("0123456789") != text.npos) return {};
  int64_t step = 0;
  for (const char digit : text) step = step * 10 + (digit - '0');
  return step;
}

int64_t step_in_run(const std::string& text, const fs::path& run, CheckpointKind kind) {
  if (const auto step = step_of_words(text)) return *step;
  const fs::path folder = run / (kind == CheckpointKind::kFull ? "checkpoints" : "models");
  const fs::path path = fs::absolute(fs::path(text) / "x").lexically_normal().parent_path();
  const auto step = step_of_words(path.filename().string());
  ATHANOR_CHECK(step && text.find('/') != text.npos,
                "{} is no step: expected one such as 40, step-00000040 or {}; nothing was removed",
                printable(text.substr(0, 80)), (folder / step_folder_name(40)).string());
  std::error_code ignored;
  ATHANOR_CHECK(fs::equivalent(path.parent_path(), folder, ignored),
                "{} is not in {}, where the checkpoints of this run are; nothing was removed", text, folder.string());
  return *step;
}

fs::path find_step_folder(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return path;
  const fs::path named = (path / "x").lexically_normal().parent_path();
  const std::string name = named.filename().string();
  const auto step = step_of_words(name);
  if (!step || !name.starts_with("step-")) return path;
  for (const char* below : {"", "checkpoints", "models"})
    if (fs::path found = named.parent_path() / below / step_folder_name(*step); fs::is_directory(found, ignored))
      return found;
  return path;
}

}  // namespace athanor::inline checkpoint
