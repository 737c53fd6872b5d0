// Windows keep the values of a gradient for whoever still looks at it, while its place is used for the next step.
#include "gyre/net/window.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gyre/net/segment.h"

namespace gyre::net {
namespace {

bool all_are(std::span<const std::byte> bytes, int value) {
  return std::ranges::all_of(bytes, [value](std::byte each) { return each == static_cast<std::byte>(value); });
}

TEST(Window, shows_the_segments_bytes_at_another_address) {
  const auto segment = Segment::create(40'000);
  const std::span<std::byte> place = segment->bytes().subspan(5'056, 20'000);
  const auto window = Window::over(place);
  ASSERT_EQ(window->bytes().size(), place.size());
  EXPECT_NE(window->bytes().data(), place.data());
  std::ranges::fill(place, std::byte{1});
  EXPECT_TRUE(all_are(window->bytes(), 1));
  std::ranges::fill(window->bytes(), std::byte{2});
  EXPECT_TRUE(all_are(place, 2));
  EXPECT_TRUE(all_are(segment->bytes().first(5'056), 0));
  EXPECT_TRUE(all_are(segment->bytes().subspan(25'056), 0));
}

TEST(Window, keeps_its_values_at_the_same_address_and_leaves_its_neighbours_alone) {
  const auto segment = Segment::create(40'000);
  const std::span<std::byte> place = segment->bytes().subspan(5'056, 20'000);
  const auto kept = Window::over(place);
  const auto neighbour = Window::over(segment->bytes().subspan(25'056, 64));  // On the same page as the end of `kept`.
  std::ranges::fill(place, std::byte{3});
  const std::byte* address = kept->bytes().data();
  kept->keep_values();
  const auto next = Window::over(place);
  std::ranges::fill(segment->bytes(), std::byte{4});
  EXPECT_EQ(kept->bytes().data(), address);
  EXPECT_TRUE(all_are(kept->bytes(), 3));
  EXPECT_TRUE(all_are(next->bytes(), 4));
  EXPECT_TRUE(all_are(neighbour->bytes(), 4));
  std::ranges::fill(kept->bytes(), std::byte{5});  // The owner of the old values may write them.
  EXPECT_TRUE(all_are(place, 4));
  kept->keep_values();  // Once more changes nothing.
  EXPECT_TRUE(all_are(kept->bytes(), 5));
}

TEST(Window, outlives_the_segment_and_may_be_empty) {
  auto segment = Segment::create(64);
  const auto window = Window::over(segment->bytes());
  const auto empty = Window::over(segment->bytes().first(0));
  std::ranges::fill(segment->bytes(), std::byte{6});
  segment.reset();
  EXPECT_TRUE(all_are(window->bytes(), 6));
  empty->keep_values();
  EXPECT_TRUE(empty->bytes().empty());
}

}  // namespace
}  // namespace gyre::net
