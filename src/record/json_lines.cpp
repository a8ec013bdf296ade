#include "record/json_lines.h"

#include <cerrno>
#include <fstream>
#include <string>

#include "base/bounded_json.h"
#include "base/error.h"

namespace athanor::inline record {
namespace fs = std::filesystem;
using nlohmann::json;

void for_each_line(const fs::path& file, uint64_t begin, const std::function<void(std::string_view line)>& take) {
  std::error_code missing;
  if (!fs::is_regular_file(file, missing)) return;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw IoError("cannot read " + file.string(), errno);
  stream.seekg(static_cast<std::streamoff>(begin));
  for (std::string line; std::getline(stream, line);) take(line);
}

void for_each_object(const fs::path& file, uint64_t begin, const std::function<void(json&& line)>& take) {
  for_each_line(file, begin, [&](std::string_view text) {
    json line = read_json(text);
    if (line.is_object()) take(std::move(line));
  });
}

uint64_t begin_of_last(const fs::path& file, uint64_t bytes) {
  std::error_code missing;
  const uintmax_t size = fs::file_size(file, missing);
  return missing || size < bytes ? 0 : size - bytes;
}

int64_t integer_in(const json& line, const char* member, int64_t otherwise) {
  const auto found = line.find(member);
  return found != line.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

double number_in(const json& line, const char* member, double otherwise) {
  const auto found = line.find(member);
  return found != line.end() && found->is_number() ? found->get<double>() : otherwise;
}

}  // namespace athanor::inline record
