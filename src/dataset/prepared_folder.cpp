#include "dataset/prepared_folder.h"

#include <string>

#include "base/file_reader.h"
#include "dataset/manifest.h"

namespace athanor::inline dataset {

bool holds_prepared_data(const std::filesystem::path& folder) {
  const auto file = folder / kDataManifestName;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return false;
  constexpr size_t kStart = 4096;  // the format is the first key
  std::string start(kStart, '\0');
  start.resize(FileReader(file).read_up_to(0, start.data(), kStart));
  return start.find(std::string("\"") + kDataFormatName + '"') != start.npos;
}

}  // namespace athanor::inline dataset
