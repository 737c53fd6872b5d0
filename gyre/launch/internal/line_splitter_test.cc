// Every byte that a rank prints passes through here: none may be lost, and memory stays bounded whatever it prints.
#include "gyre/launch/internal/line_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "gyre/base/random.h"

namespace gyre::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

using Pieces = std::vector<std::pair<std::string, LineEnd>>;

LineSplitter::Sink into(Pieces& pieces) {
  return [&pieces](std::string_view text, LineEnd end) { pieces.emplace_back(text, end); };
}

std::string joined(const Pieces& pieces) {
  std::string text;
  for (const auto& [piece, end] : pieces) {
    text += piece;
    if (end == LineEnd::kNewline) text += '\n';
    if (end == LineEnd::kCarriageReturn) text += '\r';
  }
  return text;
}

Pieces split_all(const std::vector<std::string>& reads, std::size_t limit = LineSplitter::kLongestLineBytes) {
  LineSplitter splitter(limit);
  Pieces pieces;
  for (const std::string& read : reads) splitter.add(read, into(pieces));
  splitter.finish(into(pieces));
  return pieces;
}

TEST(line_splitter, lines_are_given_whole_however_they_arrive) {
  EXPECT_THAT(split_all({"on", "e\ntw", "o\n", "\nlast"}),
              ElementsAre(Pair("one", LineEnd::kNewline), Pair("two", LineEnd::kNewline), Pair("", LineEnd::kNewline),
                          Pair("last", LineEnd::kEndOfStream)));
  EXPECT_THAT(split_all({}), IsEmpty());
  EXPECT_THAT(split_all({"whole\n"}), ElementsAre(Pair("whole", LineEnd::kNewline)));
}

TEST(line_splitter, nothing_is_given_before_its_line_is_complete) {
  LineSplitter splitter;
  Pieces pieces;
  splitter.add("half a li", into(pieces));
  EXPECT_THAT(pieces, IsEmpty());
}

TEST(line_splitter, a_progress_bar_gives_its_states) {
  EXPECT_THAT(split_all({"10%\r50%", "\r100%\nnext\n"}),
              ElementsAre(Pair("10%", LineEnd::kCarriageReturn), Pair("50%", LineEnd::kCarriageReturn),
                          Pair("100%", LineEnd::kNewline), Pair("next", LineEnd::kNewline)));
}

TEST(line_splitter, the_unfinished_state_of_a_progress_bar_can_be_seen) {
  LineSplitter splitter;
  Pieces pieces;
  splitter.add("an ordinary li", into(pieces));
  EXPECT_EQ(splitter.progress(), "");
  splitter.add("ne\n\r 10%", into(pieces));
  EXPECT_EQ(splitter.progress(), " 10%");
  splitter.add("\n", into(pieces));
  EXPECT_EQ(splitter.progress(), "");
}

TEST(line_splitter, the_line_ends_of_other_systems_stay_part_of_the_line) {
  EXPECT_THAT(split_all({"one\r", "\ntwo\r\n"}),
              ElementsAre(Pair("one\r", LineEnd::kNewline), Pair("two\r", LineEnd::kNewline)));
  EXPECT_THAT(split_all({"end\r"}), ElementsAre(Pair("end\r", LineEnd::kEndOfStream)));
}

TEST(line_splitter, a_long_line_is_cut_at_the_limit) {
  EXPECT_THAT(split_all({"abcdefghij\nk\n"}, 4),
              ElementsAre(Pair("abcd", LineEnd::kCut), Pair("efgh", LineEnd::kCut), Pair("ij", LineEnd::kNewline),
                          Pair("k", LineEnd::kNewline)));
  EXPECT_THAT(split_all({"abcd\n"}, 4), ElementsAre(Pair("abcd", LineEnd::kNewline)));
}

TEST(line_splitter, a_cut_does_not_split_a_character) {
  // "aé" is three bytes, "é" two.
  EXPECT_THAT(split_all({"aaa\xC3\xA9z\n"}, 4),
              ElementsAre(Pair("aaa", LineEnd::kCut), Pair("\xC3\xA9z", LineEnd::kNewline)));
  // Bytes that are no UTF-8 are cut anywhere.
  EXPECT_EQ(joined(split_all({std::string(100, '\x80'), std::string(100, '\xFF')}, 8)),
            std::string(100, '\x80') + std::string(100, '\xFF'));
}

TEST(line_splitter, any_bytes_in_any_pieces_come_out_as_they_went_in) {
  constexpr std::uint64_t kSeed = 20;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  const std::string alphabet("ab\n\r\0\xC3\xA9\xFF", 8);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> reads(random.below(6));
    std::string whole;
    for (std::string& read : reads) {
      for (std::uint64_t left = 1 + random.below(20); left > 0; --left) read += alphabet[random.below(alphabet.size())];
      whole += read;
    }
    const Pieces pieces = split_all(reads, 1 + random.below(9));
    ASSERT_EQ(joined(pieces), whole) << "round " << round;
  }
}

TEST(line_splitter, no_piece_is_longer_than_the_limit) {
  for (const auto& [text, end] : split_all({std::string(1000, 'x'), std::string(1000, '\r'), "\n"}, 64)) {
    EXPECT_LE(text.size(), 64U);
  }
}

}  // namespace
}  // namespace gyre::launch
