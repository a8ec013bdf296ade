#pragma once
// Makes archives for tests: plain ustar, with any names.

#include <fmt/core.h>

#include <string>

namespace athanor::staging {

inline std::string tar_member(char type, const std::string& path, const std::string& content = "",
                              const std::string& target = "", int mode = 0644) {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, path);
  put(100, fmt::format("{:07o}", mode));
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", content.size()));
  put(136, fmt::format("{:011o}", 1'700'000'000));
  put(148, "        ");
  header[156] = type;
  put(157, target);
  put(257, std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, fmt::format("{:06o}", sum) + '\0');
  std::string padded = content;
  padded.resize((content.size() + 511) / 512 * 512);
  return header + padded;
}

inline std::string tar_file(const std::string& path, const std::string& content) {
  return tar_member('0', path, content);
}
inline std::string tar_end() { return std::string(1024, '\0'); }

}  // namespace athanor::staging
