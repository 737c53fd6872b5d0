// What an image's files belong to decides what a job may do with them: every entry must change hands, and nothing else.
#include "gyre/jobs/containers/internal/tar_owners.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::jobs::containers {
namespace {

constexpr std::size_t kBlock = 512;

struct Entry {
  std::string name;
  std::string content{};
  char type = '0';
  std::string user = "0000000";
  std::string group = "0000000";
};

std::string padded(std::string text) {
  text.resize((text.size() + kBlock - 1) / kBlock * kBlock, '\0');
  return text;
}

std::string archive_of(const std::vector<Entry>& entries, bool whole = true) {
  std::string archive;
  for (const Entry& entry : entries) {
    std::string header(kBlock, '\0');
    const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
    put(0, entry.name);
    put(100, "0000755");
    put(108, entry.user);
    put(116, entry.group);
    put(124, fmt::format("{:011o}", entry.content.size()));
    put(148, "        ");
    put(156, std::string(1, entry.type));
    put(257, std::string("ustar\0"
                         "00",
                         8));
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
    archive += header + padded(entry.content);
  }
  return whole ? archive + std::string(2 * kBlock, '\0') : archive;
}

internal::TarOwners shifting() {
  return {[](std::uint64_t user) { return user == 0 ? 1000U : static_cast<std::uint32_t>(0x7000'0000 + user); },
          [](std::uint64_t group) { return static_cast<std::uint32_t>(group + 1); }};
}

std::string field(const std::string& archive, std::size_t at, std::size_t length) { return archive.substr(at, length); }

TEST(TarOwners, each_entry_changes_hands_whatever_parts_the_archive_comes_in) {
  const std::string archive = archive_of({{"bin/sh", std::string(700, 'x')}, {"tmp", "", '5', "0000002", "0000003"}});
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  internal::TarOwners owners = shifting();
  std::string out;
  for (std::size_t at = 0; at < archive.size();) {
    const std::size_t count = std::min<std::size_t>(1 + random() % 1500, archive.size() - at);
    out += owners.take(std::string_view(archive).substr(at, count));
    at += count;
  }
  ASSERT_EQ(out.size(), archive.size());
  EXPECT_TRUE(owners.is_whole());
  EXPECT_EQ(field(out, 108, 8), std::string("0001750\0", 8));
  EXPECT_EQ(field(out, 116, 8), std::string("0000001\0", 8));
  EXPECT_EQ(field(out, kBlock, 2 * kBlock), field(archive, kBlock, 2 * kBlock));
  // A number that seven octal digits cannot hold.
  EXPECT_EQ(field(out, 3 * kBlock + 108, 8), std::string("\x80\0\0\0\x70\0\0\x02", 8));
  EXPECT_EQ(field(out, 3 * kBlock + 116, 8), std::string("0000004\0", 8));
  // All else is as it was: the entry with its old owner again has its old sum.
  internal::TarOwners nobody([](std::uint64_t) { return 0U; }, [](std::uint64_t) { return 0U; });
  const std::string one = archive_of({{"bin/sh", "x"}});
  EXPECT_EQ(shifting().take(one).size(), one.size());
  EXPECT_EQ(field(nobody.take(one), 148, 6), field(one, 148, 6));
}

TEST(TarOwners, what_a_pax_header_says_of_owners_and_sizes_counts) {
  const std::string records = "15 uid=3000000\n15 gid=4000000\n12 size=600\n";
  const std::string archive = archive_of({{"pax", records, 'x'}, {"large", std::string(600, 'y')}, {"next", "", '0'}});
  std::string header = archive;
  header.replace(2 * kBlock + 124, 11, "00000000000");  // Its own field has no room for it.
  internal::TarOwners owners = shifting();
  const std::string out = owners.take(header);
  EXPECT_TRUE(owners.is_whole());
  EXPECT_EQ(field(out, kBlock, 30), "15 xid=3000000\n15 xid=4000000\n");
  EXPECT_EQ(field(out, 2 * kBlock + 108, 8), std::string("\x80\0\0\0\x70\x2d\xc6\xc0", 8));
  EXPECT_EQ(field(out, 5 * kBlock + 108, 8), std::string("0001750\0", 8));
}

TEST(TarOwners, a_part_of_an_archive_is_not_whole_and_a_broken_one_is_refused) {
  internal::TarOwners part = shifting();
  part.take(archive_of({{"a", "b"}}, false));
  EXPECT_FALSE(part.is_whole());
  for (const char* records : {"99 uid=1\n", "x uid=1\n", "6 uid=", "9 uid=a1\n"}) {
    internal::TarOwners owners = shifting();
    EXPECT_THROW(owners.take(archive_of({{"pax", records, 'x'}, {"a", ""}})), Error) << records;
  }
  internal::TarOwners owners = shifting();
  EXPECT_THROW(owners.take(archive_of({}) + archive_of({{"a", "b"}})), Error);
}

}  // namespace
}  // namespace gyre::jobs::containers
