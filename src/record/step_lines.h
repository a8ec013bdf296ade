#pragma once
// The lines of metrics.jsonl, one for each step (docs/metrics.md). step_table.h reads some fields of all steps.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace athanor::inline record {

/// The numbers by which a step is judged later.
struct RecordedNumbers {
  int64_t step;
  double loss, grad_norm;
};
/// Returns nothing if the line is not that of a step, or one of these is not finite.
std::optional<RecordedNumbers> step_numbers_of(std::string_view line);
/// Returns lines from which step_numbers_of reads the numbers of the last `most` steps of a metrics.jsonl that have
/// them, joined; "" if there is no such file, or it cannot be read.
std::string last_step_numbers(const std::filesystem::path& metrics, size_t most);

/// Calls `take` for the steps among the newest lines of a metrics.jsonl, in their order: the last 256 KiB, where a line
/// has some hundred bytes, with loads of layers some kilobytes. @throws IoError.
void for_each_newest_step(const std::filesystem::path& metrics,
                          const std::function<void(int64_t step, int64_t attempt)>& take);
/// Returns the time (seconds since 1970) of the first step of an attempt after `attempt`. @throws IoError.
std::optional<double> time_of_first_step(const std::filesystem::path& metrics, int64_t attempt);
/// Returns the last whole line that is a JSON object; an empty object if there is none among the last 4 MiB.
/// @throws IoError if the file cannot be read.
nlohmann::ordered_json last_step_line(const std::filesystem::path& metrics);

/// Returns the bytes up to the end of the last whole line whose step is at most `step`. Steps increase from line to
/// line, so only what comes after is read, from the end: a run of a million steps resumes at once.
/// @param text  of a metrics.jsonl.
size_t bytes_up_to_step(std::string_view text, int64_t step);

}  // namespace athanor::inline record
