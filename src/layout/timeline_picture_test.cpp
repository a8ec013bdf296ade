#include "layout/timeline_picture.h"

#include <gtest/gtest.h>

namespace athanor::timeline_picture_test {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(TimelinePicture, HasABoxForEachActionAndARowForEachRank) {
  const Schedule schedule = make_schedule("1f1b", 3, 1, 4);
  const Timeline played = play_schedule(schedule);
  const std::string svg = draw_timeline(played, {"a title", TimelinePicture::Unit::kForwards});
  EXPECT_EQ(count(svg, "stroke=\"#fff\""), 3u * 2u * 4u);
  EXPECT_EQ(count(svg, ">rank "), 3u);
  EXPECT_EQ(count(svg, "a title"), 1u);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

TEST(TimelinePicture, TheTitleHasTheBubbleBesideThoseOfThePlay) {
  const Schedule schedule = make_schedule("interleaved_1f1b", 2, 2, 4);
  EXPECT_EQ(schedule_title(schedule), "interleaved_1f1b, 2 ranks of 2 stages, 4 microbatches: bubble 11.1%");
  Timeline timeline = play_schedule(schedule);
  EXPECT_EQ(timeline_title(schedule, timeline),
            "interleaved_1f1b, 2 ranks of 2 stages, 4 microbatches: bubble 11.1%, of these stages 11.1%, of equal ones "
            "11.1%");
  timeline[0].back().begin_s += 27;  // it waits in vain for as long as everything took
  timeline[0].back().end_s += 27;
  EXPECT_EQ(timeline_title(schedule, timeline),
            "interleaved_1f1b, 2 ranks of 2 stages, 4 microbatches: bubble 55.6%, of these stages 11.1%, of equal ones "
            "11.1%");
}

}  // namespace
}  // namespace athanor::timeline_picture_test
