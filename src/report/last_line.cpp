#include "report/last_line.h"

#include <cstdint>
#include <string>

#include "base/bounded_json.h"
#include "base/file_reader.h"

namespace athanor {

nlohmann::ordered_json last_json_line(const std::filesystem::path& file) {
  constexpr uint64_t kEnd = uint64_t{4} << 20;
  const FileReader reader(file);
  const uint64_t begin = reader.size() > kEnd ? reader.size() - kEnd : 0;
  std::string text(reader.size() - begin, '\0');
  text.resize(reader.read_up_to(begin, text.data(), text.size()));
  for (size_t end = text.rfind('\n'); end != text.npos && end > 0;) {
    const size_t before = text.rfind('\n', end - 1);
    const size_t first = before == text.npos ? 0 : before + 1;
    auto line = read_ordered_json(text.substr(first, end - first));
    if (line.is_object()) return line;
    if (before == text.npos) break;
    end = before;
  }
  return nlohmann::ordered_json::object();
}

}  // namespace athanor
