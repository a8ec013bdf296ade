#include "layout/timeline_picture.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace athanor::inline layout {
namespace {

constexpr double kWidth = 960, kLeft = 64, kRight = 16, kRow = 30, kGap = 6, kTop = 56, kBottom = 40;
constexpr double kLeastForText = 14;  // pixels; a number in a narrower box would be unreadable
// Colours of forwards and backwards, by chunk; a fifth chunk begins again.
constexpr const char* kForwardFill[] = {"#a8c8ee", "#6ea1dc", "#3f79bd", "#265489"};
constexpr const char* kBackwardFill[] = {"#b9dfb0", "#86c07a", "#559a4b", "#37702f"};
constexpr int kFills = 4;

// Returns 1, 2 or 5 times a power of ten, so that the whole has about ten ticks.
double tick_of(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 10)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (power * factor >= span / 10) return power * factor;
  }
  return power * 10;
}

struct TimeAxis {
  double begin, span, scale;  // in seconds; in units

  double x(double at) const { return kLeft + (at - begin) / span * (kWidth - kLeft - kRight); }
};

std::string box(const TimedAction& timed, const TimeAxis& axis, double y) {
  const auto& fills = timed.action.work == Work::kForward ? kForwardFill : kBackwardFill;
  const int shade = timed.action.chunk % kFills;
  const double x = axis.x(timed.begin_s), width = axis.x(timed.end_s) - x;
  std::string text = fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"#fff\" "
      "stroke-width=\"0.7\"/>\n",
      x, y, std::max(width, 0.3), kRow, fills[shade]);
  if (width >= kLeastForText) {
    text += fmt::format("<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n", x + width / 2,
                        y + kRow / 2 + 4, shade < 2 ? "#111" : "#fff", timed.action.microbatch);
  }
  return text;
}

std::string ticks(const TimeAxis& axis, double bottom, const char* unit) {
  const double tick = tick_of(axis.span * axis.scale);
  std::string text;
  for (int i = 0; tick * i <= axis.span * axis.scale * (1 + 1e-9); ++i) {
    const double x = axis.x(axis.begin + tick * i / axis.scale);
    text += fmt::format(
        "<line x1=\"{0:.2f}\" y1=\"{1:.1f}\" x2=\"{0:.2f}\" y2=\"{2:.1f}\" stroke=\"#888\"/>\n"
        "<text x=\"{0:.2f}\" y=\"{3:.1f}\" text-anchor=\"middle\" fill=\"#444\">{4:g}{5}</text>\n",
        x, bottom, bottom + 5, bottom + 18, tick * i, i == 0 ? std::string(" ") + unit : "");
  }
  return text;
}

std::string legend(const Timeline& timeline) {
  int chunks = 1;
  for (const auto& rank : timeline) {
    for (const TimedAction& timed : rank) chunks = std::max(chunks, timed.action.chunk + 1);
  }
  std::string text;
  double x = kLeft;
  const auto entry = [&](const char* const* fills, const char* name) {
    for (int c = 0; c < std::min(chunks, kFills); ++c, x += 13) {
      text += fmt::format("<rect x=\"{:.0f}\" y=\"34\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x, fills[c]);
    }
    text += fmt::format("<text x=\"{:.0f}\" y=\"44\" fill=\"#444\">{}</text>\n", x + 4, name);
    x += 80;
  };
  entry(kForwardFill, "forward");
  entry(kBackwardFill, "backward");
  text += fmt::format("<text x=\"{:.0f}\" y=\"44\" fill=\"#444\">numbers are microbatches{}</text>\n", x,
                      chunks > 1 ? ", darker boxes later stages of a rank" : "");
  return text;
}

std::string of_ranks(const Schedule& schedule) {
  return fmt::format("{}, {} ranks{}, {} microbatches", schedule.name, schedule.ranks,
                     schedule.chunks > 1 ? fmt::format(" of {} stages", schedule.chunks) : "", schedule.microbatches);
}

}  // namespace

std::string draw_timeline(const Timeline& timeline, const TimelinePicture& picture) {
  double begin = std::numeric_limits<double>::infinity(), end = -begin;
  for (const auto& rank : timeline) {
    for (const TimedAction& timed : rank) {
      begin = std::min(begin, timed.begin_s);
      end = std::max(end, timed.end_s);
    }
  }
  ATHANOR_ASSERT(begin < end);
  const bool seconds = picture.unit == TimelinePicture::Unit::kMilliseconds;
  const TimeAxis axis{begin, end - begin, seconds ? 1e3 : 1};
  const double bottom = kTop + static_cast<double>(timeline.size()) * (kRow + kGap);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<text x=\"{2:.0f}\" y=\"22\" font-size=\"14\" fill=\"#111\">{3}</text>\n",
      kWidth, bottom + kBottom, kLeft, picture.title);
  svg += legend(timeline);
  for (size_t r = 0; r < timeline.size(); ++r) {
    const double y = kTop + static_cast<double>(r) * (kRow + kGap);
    svg += fmt::format(
        "<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#111\">rank {}</text>\n"
        "<rect x=\"{:.0f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#f0f0f0\"/>\n",
        kLeft - 8, y + kRow / 2 + 4, r, kLeft, y, kWidth - kLeft - kRight, kRow);
    for (const TimedAction& timed : timeline[r]) svg += box(timed, axis, y);
  }
  return svg + ticks(axis, bottom, seconds ? "ms" : "forwards") + "</svg>\n";
}

std::string schedule_title(const Schedule& schedule) {
  return fmt::format("{}: bubble {:.1f}%", of_ranks(schedule), 100 * check_schedule(schedule).bubble);
}

std::string timeline_title(const Schedule& schedule, const Timeline& timeline) {
  const Timeline of_these = play_schedule(schedule, mean_costs(schedule, timeline));
  return fmt::format("{}: bubble {:.1f}%, of these stages {:.1f}%, of equal ones {:.1f}%", of_ranks(schedule),
                     100 * bubble_of(timeline), 100 * bubble_of(of_these), 100 * check_schedule(schedule).bubble);
}

}  // namespace athanor::inline layout
