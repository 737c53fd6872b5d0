// What may be closed to make room decides whether a flood keeps ranks out, and whether ranks keep each other out.
#include "gyre/net/async/strangers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace gyre::net {
namespace {

constexpr std::size_t kUnlimited = 1'000'000;

TEST(Strangers, the_limit_grows_with_the_job_and_is_bounded_by_half_of_the_descriptors_that_members_leave) {
  EXPECT_EQ(most_strangers(2, kUnlimited), 260U);
  EXPECT_EQ(most_strangers(200, kUnlimited), 656U);
  EXPECT_EQ(most_strangers(10'000, kUnlimited), 20'256U);
  EXPECT_EQ(most_strangers(300, 1024), 556U);
  EXPECT_EQ(most_strangers(200, 1024), 512U);
  EXPECT_EQ(most_strangers(2, 16), 258U);
}

/// Connections are their own numbers.
struct Door {
  explicit Door(std::size_t expected) : strangers(expected, most_strangers(expected, kUnlimited)) {}

  /// The one that had to make room, or -1.
  int come(const std::string& source) {
    const int displaced = strangers.full() ? strangers.displace() : -1;
    strangers.add(source, next++);
    return displaced;
  }

  Strangers<int> strangers;
  int next = 0;
};

TEST(Strangers, all_members_fit_whatever_their_sources) {
  for (const std::size_t members : {1U, 2U, 64U, 300U, 5'000U}) {
    Door door(members);
    for (std::size_t i = 0; i < members; ++i) EXPECT_EQ(door.come(fmt::format("10.0.0.{}", i % 7)), -1);
  }
}

TEST(Strangers, a_flood_from_one_source_displaces_only_itself) {
  for (const std::size_t members : {1U, 2U, 64U, 300U}) {
    Door door(members);
    std::vector<int> ours;
    for (std::size_t i = 0; i < members; ++i) {
      ours.push_back(door.next);
      EXPECT_EQ(door.come(fmt::format("10.0.0.{}", i % 8)), -1);
    }
    for (int i = 0; i < 3'000; ++i) {
      const int displaced = door.come("10.9.9.9");
      EXPECT_EQ(std::count(ours.begin(), ours.end(), displaced), 0);
    }
  }
}

TEST(Strangers, a_flood_from_everywhere_needs_as_many_connections_as_the_limit_to_displace_a_member) {
  Door door(8);
  for (int i = 0; i < 500; ++i) door.come(fmt::format("10.1.{}.{}", i / 250, i % 250));
  const int member = door.next;
  door.come("10.0.0.1");
  int others = 0;
  while (door.come(fmt::format("10.2.{}.{}", others / 250, others % 250)) != member) ++others;
  EXPECT_EQ(others + 1, static_cast<int>(most_strangers(8, kUnlimited)));
}

/// The rule, applied by looking at everything.
class Model {
 public:
  explicit Model(std::size_t expected) : expected_(expected) {}
  void add(const std::string& source, std::uint64_t number) { open_.emplace_back(source, number); }
  bool remove(std::uint64_t number) {
    return std::erase_if(open_, [&](const auto& entry) { return entry.second == number; }) == 1;
  }
  std::uint64_t displace() {
    std::map<std::string, std::size_t> counts;
    for (const auto& [source, number] : open_) ++counts[source];
    std::string crowded;
    for (const auto& [source, count] : counts) {
      if (count > expected_ && crowded.empty()) crowded = source;
    }
    const auto victim = std::find_if(open_.begin(), open_.end(),
                                     [&](const auto& entry) { return crowded.empty() || entry.first == crowded; });
    const std::uint64_t number = victim->second;
    open_.erase(victim);
    return number;
  }
  std::size_t size() const { return open_.size(); }

 private:
  std::size_t expected_;
  std::vector<std::pair<std::string, std::uint64_t>> open_;
};

TEST(Strangers, random_comings_and_goings_agree_with_the_rule) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    const std::size_t expected = 1 + random() % 6;
    const std::size_t most = expected + 1 + random() % 30;
    Strangers<std::uint64_t> strangers(expected, most);
    Model model(expected);
    std::uint64_t next = 0;
    for (int step = 0; step < 500; ++step) {
      if (next > 0 && random() % 3 == 0) {
        const std::uint64_t number = random() % next;
        ASSERT_EQ(strangers.remove(number), model.remove(number));
        continue;
      }
      ASSERT_EQ(strangers.full(), model.size() >= most);
      if (strangers.full()) {
        ASSERT_EQ(strangers.displace(), model.displace());
      }
      const std::string source = fmt::format("{}", random() % 5);
      ASSERT_EQ(strangers.add(source, next), next);
      model.add(source, next++);
      ASSERT_EQ(strangers.size(), model.size());
    }
  }
}

}  // namespace
}  // namespace gyre::net
