// What the ranks of a job can know about those that have ended: exactly what launchers have noted, and not by their
// own hand.
#include "gyre/launch/internal/ended_ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "gyre/launch/host.h"

namespace gyre::launch {
namespace {

std::string text_of(const EndedRanks& ended) {
  std::array<char, 4096> text;
  const ssize_t count = ::pread(ended.descriptor(), text.data(), text.size(), 0);
  EXPECT_GE(count, 0);
  return {text.data(), static_cast<std::size_t>(count)};
}

TEST(EndedRanks, ranks_read_what_the_launcher_notes_in_its_order) {
  EndedRanks ended;
  EXPECT_EQ(text_of(ended), "");
  const std::string first = ended.note(3, 4711);
  EXPECT_EQ(first, fmt::format("rank 3 (host {}, pid 4711) ended with exit code 0", host_name()));
  const std::string second = ended.note(0, 12);
  EXPECT_EQ(text_of(ended), first + "\n" + second + "\n");
}

TEST(EndedRanks, ranks_cannot_write_there) {
  const EndedRanks ended;
  EXPECT_LT(::write(ended.descriptor(), "x", 1), 0);
}

TEST(EndedRanks, lines_of_other_hosts_arrive_in_any_pieces_and_nothing_else_gets_in) {
  EndedRanks ended;
  ended.hear("rank 5 (host b, pi");
  EXPECT_EQ(text_of(ended), "");
  ended.hear("d 7) ended with exit code 0\nsomething else\nrank ");
  ended.hear(std::string(EndedRanks::kLongestLineBytes, '9') + "\nrank 6 (host b, pid 8) ended with exit code 0\nrank");
  EXPECT_EQ(text_of(ended),
            "rank 5 (host b, pid 7) ended with exit code 0\nrank 6 (host b, pid 8) ended with exit code 0\n");
}

}  // namespace
}  // namespace gyre::launch
