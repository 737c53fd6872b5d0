// A job's metrics must survive whatever ends its launcher: what can be read is what was written, or its beginning.
#include "gyre/metrics/file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/metrics/internal/block.h"
#include "gyre/metrics/job_file.h"

namespace gyre::metrics {
namespace {

namespace fs = std::filesystem;

class MetricsFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "gyre-metrics-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

/// Everything in a file as text, with the exact bits of each value.
class Texts : public FileVisitor {
 public:
  void event(std::string_view line) override { all.push_back(fmt::format("event {}", line)); }
  void sample(const Sample& sample) override { all.push_back(text_of(sample)); }
  void note(std::string_view key, std::string_view value) override { all.push_back(fmt::format("{}={}", key, value)); }
  static std::string text_of(const Sample& sample) {
    return fmt::format("{} {} {} {} {:016x}", sample.name, sample.rank, sample.step, sample.time_us,
                       std::bit_cast<std::uint64_t>(sample.value));
  }
  std::vector<std::string> all;
};

Bytes contents(const fs::path& path) { return read_file(path, 1 << 30); }

/// Samples that look like a job's, and now and then like nothing at all.
std::vector<Sample> random_samples(std::mt19937_64& random, const std::vector<std::string>& names) {
  std::vector<Sample> samples(1 + random() % 5);
  for (Sample& sample : samples) {
    const bool wild = random() % 8 == 0;
    sample.name = names[random() % names.size()];
    sample.rank = wild ? static_cast<int>(random() % 100'000) : static_cast<int>(random() % 4);
    sample.step = static_cast<std::int64_t>(wild ? random() : random() % 1'000);
    sample.time_us = static_cast<std::int64_t>(wild ? random() : 1'790'000'000'000'000 + random() % 1'000'000);
    sample.value = wild ? std::bit_cast<double>(random()) : static_cast<double>(random() % 1'000) / 7;
  }
  return samples;
}

TEST_F(MetricsFile, is_followed_while_it_grows_byte_by_byte) {
  const fs::path whole = folder_ / "whole";
  FileWriter writer(whole);
  writer.note("ranks", "2");
  for (int i = 0; i < 3; ++i) writer.add(std::vector<Sample>{{"loss", 0, i, i, 0.5 * i}});
  const Bytes bytes = contents(whole);
  const fs::path growing = folder_ / "growing";
  std::ofstream(growing).close();
  Texts texts;
  FileReader reader(growing, texts);
  std::size_t visited = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::ofstream(growing, std::ios::app | std::ios::binary).put(static_cast<char>(bytes[i]));
    reader.read();
    EXPECT_GE(texts.all.size(), visited);
    visited = texts.all.size();
    EXPECT_EQ(visited == 4, i + 1 == bytes.size());
  }
  EXPECT_EQ(reader.read(), 0U);
  EXPECT_EQ(texts.all.size(), 4U);
}

TEST_F(MetricsFile, belongs_to_one_writer_and_shows_when_that_is_gone) {
  const fs::path path = folder_ / "job";
  Texts texts;
  {
    FileWriter writer(path);
    FileReader reader(path, texts);
    EXPECT_TRUE(reader.is_written());
    EXPECT_THROW(FileWriter{path}, Error);
    writer.note("ranks", "2");
  }
  FileReader reader(path, texts);
  EXPECT_FALSE(reader.is_written());
  reader.read();
  EXPECT_THAT(texts.all, testing::ElementsAre("ranks=2"));
  EXPECT_EQ(FileWriter(path).earlier(), folder_ / "job.1");
}

TEST_F(MetricsFile, takes_the_place_of_nothing_but_metrics) {
  const fs::path text = folder_ / "notes.txt";
  std::ofstream(text) << "my notes";
  EXPECT_THROW(FileWriter{text}, Error);
  EXPECT_EQ(as_text(contents(text)), "my notes");
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(FileWriter{pipe}, Error);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_THROW(FileWriter{"/dev/null"}, Error);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  std::ofstream(folder_ / "empty").close();
  EXPECT_EQ(FileWriter(folder_ / "empty").earlier(), folder_ / "empty.1");
}

TEST_F(MetricsFile, cut_at_any_byte_it_holds_a_beginning_of_what_was_written) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const std::vector<std::string> names = {"loss", "épreuve/accuracy", "lr", std::string(kLongestName, 'x')};
  std::vector<std::string> model;
  std::vector<std::pair<std::uint64_t, std::size_t>> ends;  // Of the file, and of what was written then.
  const fs::path path = folder_ / "job.metrics";
  FileWriter writer(path);
  for (int i = 0; i < 40; ++i) {
    if (random() % 4 == 0) {
      const std::string value(random() % 20, 'v');
      writer.note("command", value);
      model.push_back("command=" + value);
    } else {
      const auto samples = random_samples(random, names);
      writer.add(samples);
      for (const Sample& sample : samples) model.push_back(Texts::text_of(sample));
    }
    ends.emplace_back(fs::file_size(path), model.size());
  }
  const Bytes whole = contents(path);
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    Texts read;
    const std::uint64_t behind = read_metrics(std::span(whole).first(size), "cut", read);
    std::size_t expected = 0;
    for (const auto& [end, count] : ends) expected = end <= size ? count : expected;
    ASSERT_EQ(read.all, std::vector(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(expected))) << size;
    ASSERT_EQ(behind == 0, size == 8 || size == 0 || std::ranges::find(ends, size, [](const auto& each) {
                                                       return each.first;
                                                     }) != ends.end());
  }
}

TEST_F(MetricsFile, no_flipped_bit_becomes_a_value) {
  // Every bit of a small file: what is read is a beginning of what was written, or the file is refused.
  const fs::path path = folder_ / "job.metrics";
  FileWriter writer(path);
  const std::vector<Sample> samples = {{"loss", 0, 1, 1'000, 0.5}, {"loss", 0, 2, 2'000, 0.25}};
  writer.note("command", "train");
  writer.add(std::span(samples).first(1));
  writer.add(std::span(samples).last(1));
  Texts whole;
  ASSERT_EQ(read_metrics(path, whole), 0U);
  Bytes bytes = contents(path);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const auto flip = static_cast<std::byte>(1U << (bit % 8));
    bytes[bit / 8] ^= flip;
    Texts read;
    try {
      EXPECT_GT(read_metrics(bytes, "flipped", read), 0U) << bit;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    }
    ASSERT_LT(read.all.size(), whole.all.size()) << bit;
    ASSERT_TRUE(std::equal(read.all.begin(), read.all.end(), whole.all.begin())) << bit;
    bytes[bit / 8] ^= flip;
  }
}

TEST_F(MetricsFile, a_large_file_is_read_in_pieces) {
  // More than one buffer of the reader, and one call with more than a block takes.
  const fs::path path = folder_ / "job.metrics";
  FileWriter writer(path);
  std::vector<Sample> samples;
  for (int i = 0; i < 200'000; ++i) samples.push_back({"loss", i % 3, i, 1'000L * i, 1.0 / (1 + i)});
  writer.add(samples);
  EXPECT_EQ(writer.dropped(), 0U);
  EXPECT_GT(fs::file_size(path), 2U << 20);
  EXPECT_LT(fs::file_size(path) / samples.size(), 16U) << "bytes a sample";
  Texts read;
  EXPECT_EQ(read_metrics(path, read), 0U);
  ASSERT_EQ(read.all.size(), samples.size());
  EXPECT_EQ(read.all.back(), Texts::text_of(samples.back()));
  std::ofstream(path, std::ios::app) << std::string(3 << 20, 'x');
  Texts again;
  EXPECT_EQ(read_metrics(path, again), 3U << 20);
  EXPECT_EQ(again.all, read.all);
}

TEST_F(MetricsFile, it_stays_within_its_limits) {
  const fs::path path = folder_ / "job.metrics";
  FileWriter writer(path, 4'096);
  for (int i = 0; i < 1'000; ++i) writer.add(std::vector<Sample>{{"loss", 0, i, i, 0.5}});
  EXPECT_LE(fs::file_size(path), 4'096U);
  Texts read;
  EXPECT_EQ(read_metrics(path, read), 0U);
  EXPECT_GT(read.all.size(), 100U);
  EXPECT_EQ(read.all.size() + writer.dropped(), 1'000U);
}

TEST_F(MetricsFile, names_beyond_the_most_are_dropped_and_counted) {
  FileWriter writer(folder_ / "job.metrics");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kMostSeries + 5; ++i) names.push_back(fmt::format("series {}", i));
  std::vector<Sample> samples;
  for (const std::string& name : names) samples.push_back({name, 0, 1, 1, 1.0});
  writer.add(samples);
  EXPECT_EQ(writer.dropped(), 5U);
  writer.add(std::vector<Sample>{{"one more", 0, 1, 1, 1.0}, {"series 3", 0, 2, 2, 2.0}});
  EXPECT_EQ(writer.dropped(), 6U);
  Texts read;
  EXPECT_EQ(read_metrics(folder_ / "job.metrics", read), 0U);
  EXPECT_EQ(read.all.size(), kMostSeries + 1);
}

TEST_F(MetricsFile, the_file_of_an_earlier_job_is_kept_under_a_number) {
  const fs::path path = folder_ / "job.metrics";
  FileWriter(path).note("number", "first");
  const Bytes first = contents(path);
  std::ofstream(folder_ / "job.metrics.1") << "older";
  const FileWriter writer(path);
  EXPECT_EQ(writer.earlier(), folder_ / "job.metrics.2");
  EXPECT_EQ(contents(folder_ / "job.metrics.2"), first);
  EXPECT_THROW(FileWriter{folder_}, Error);
}

TEST_F(MetricsFile, other_files_are_refused) {
  std::ofstream(folder_ / "other") << "step,loss\n1,0.5\n";
  Texts read;
  try {
    read_metrics(folder_ / "other", read);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_THAT(error.what(), testing::HasSubstr("other is not a metrics file"));
  }
  EXPECT_THROW(read_metrics(folder_ / "none", read), Error);
}

TEST_F(MetricsFile, blocks_of_kinds_to_come_are_passed_over) {
  // A newer Gyre may write what this one does not know.
  const fs::path path = folder_ / "job.metrics";
  FileWriter(path).note("a", "b");
  Bytes bytes = contents(path);
  const Bytes known = encode_note("c", "d");
  ByteWriter unknown;
  unknown.u32(3);
  unknown.u32(crc32c(as_bytes("\x7f??"), crc32c(std::span(unknown.result()).first(4))));
  unknown.text("\x7f??");
  bytes.insert(bytes.end(), unknown.result().begin(), unknown.result().end());
  bytes.insert(bytes.end(), known.begin(), known.end());
  Texts read;
  EXPECT_EQ(read_metrics(bytes, "newer", read), 0U);
  EXPECT_THAT(read.all, testing::ElementsAre("a=b", "c=d"));
}

TEST(MetricNames, are_short_lines_of_utf8) {
  for (const char* name : {"loss", "train/top-5 accuracy", "Größe", "損失", "\xf0\x9f\x98\x80"})
    EXPECT_TRUE(is_name(name));
  for (const char* name :
       {"", "a\nb", "\x7f", "\xc2\x85", "\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    EXPECT_FALSE(is_name(name)) << name;
  }
  EXPECT_FALSE(is_name(std::string(kLongestName + 1, 'x')));
  EXPECT_THROW(check_users_name("gyre/exchange"), Error);
  check_users_name("gyrescope");
}

// Who failed must be in the file of a job that has logged more than it may.
TEST_F(MetricsFile, events_find_room_that_samples_leave) {
  FileWriter writer(folder_ / "m", std::uint64_t{4} << 20);
  std::vector<Sample> samples(10'000);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i] = {.name = "loss", .rank = 0, .step = static_cast<std::int64_t>(i), .time_us = 0, .value = 1};
  }
  while (writer.dropped() == 0) writer.add(samples);
  writer.event("{}");
  writer.event(std::string(60'000, 'x'));
  Texts texts;
  EXPECT_EQ(read_metrics(folder_ / "m", texts), 0U);
  ASSERT_GT(texts.all.size(), 10'000U);
  EXPECT_EQ(texts.all[texts.all.size() - 2], "event {}");
  EXPECT_EQ(texts.all.back(), "event " + std::string(60'000, 'x'));
  EXPECT_THROW(writer.event(std::string(70'000, 'x')), Error);
}

// The names of a job's files are what tells attempts and nodes apart; anything else in its folder is somebody else's.
TEST(MetricsJobFile, names_and_orders_are_read_as_they_are_written) {
  const JobFile file{.attempt = 12, .node = 3};
  EXPECT_EQ(name_of(file), "gyre-12-3.metrics");
  EXPECT_EQ(job_file_named("gyre-12-3.metrics"), file);
  for (const char* other : {"gyre-12-3.metrics.1", "gyre-012-3.metrics", "gyre--1-3.metrics", "gyre-1.metrics",
                            "gyre-99999999999-0.metrics"}) {
    EXPECT_FALSE(job_file_named(other)) << other;
  }
  EXPECT_EQ(name_of_timelines(3), "gyre-3-timeline-{rank}.json");
  const auto timeline = job_timeline_named("gyre-3-timeline-12.json");
  ASSERT_TRUE(timeline);
  EXPECT_EQ(timeline->attempt, 3);
  EXPECT_EQ(timeline->rank, 12);
  for (const char* other : {"gyre-3-timeline-012.json", "gyre-3-timeline-1.json.1", "gyre-3-timeline-.json",
                            "gyre-3-timeline--1.json", "gyre-3-1.metrics"}) {
    EXPECT_FALSE(job_timeline_named(other)) << other;
  }
  const auto order = parse_job_file_order(text_of(JobFileOrder{.path = "/logs/a:b", .most_bytes = 77}));
  ASSERT_TRUE(order);
  EXPECT_EQ(order->path, "/logs/a:b");
  EXPECT_EQ(order->most_bytes, 77U);
  for (const char* other : {"", "77", ":/x", "77:x", "-1:/x"}) EXPECT_FALSE(parse_job_file_order(other)) << other;
}

}  // namespace
}  // namespace gyre::metrics
