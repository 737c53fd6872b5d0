// Staging from sources that fail at random, against what they hold.

#include "gyre/store/staging/stage.h"
#include "gyre/store/sources/local.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "gyre/base/boot.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/random.h"
#include "gyre/data/formats/inflate.h"
#include "gyre/store/staging/crew.h"
#include "gyre/store/staging/stage_log.h"

namespace gyre::store {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::ThrowsMessage;

constexpr std::uint64_t kMiB = 1 << 20;

struct TemporaryFolder {
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "gyre-stage-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { fs::remove_all(path); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  fs::path path;
};

Bytes random_bytes(Random& random, std::uint64_t count) {
  Bytes bytes(count);
  for (std::byte& one : bytes) one = static_cast<std::byte>(random.next_u32());
  return bytes;
}

/// A source in memory whose readings fail as a seed says.
class FaultySource : public Source {
 public:
  FaultySource(std::map<std::string, Bytes> objects, std::uint64_t seed)
      : objects_(std::move(objects)), random_(seed) {}

  const std::string& name() const override { return name_; }
  std::vector<Object> list(const ReadLimits&, std::chrono::milliseconds) override {
    std::vector<Object> objects;
    for (const auto& [name, bytes] : objects_)
      objects.push_back({.name = name, .size_bytes = bytes.size(), .version = "1"});
    return objects;
  }
  std::unique_ptr<ObjectReader> reader(const ReadLimits&) const override { return std::make_unique<Reader>(*this); }

  mutable std::atomic<std::uint64_t> given_bytes{0};
  mutable std::atomic<std::uint64_t> stop_after{~std::uint64_t{0}};  ///< Then readings end the staging.
  bool fails = true;

 private:
  class Reader : public ObjectReader {
   public:
    explicit Reader(const FaultySource& source) : source_(source) {}
    ReadOutcome read(const Object& object, std::uint64_t offset_bytes, std::span<std::byte> into) override {
      std::size_t count = into.size();
      const bool setback = source_.fails && source_.draw(12) == 0;
      if (setback) count = source_.draw(count + 1);
      if (count > 0) std::memcpy(into.data(), source_.objects_.at(object.name).data() + offset_bytes, count);
      if ((source_.given_bytes += count) > source_.stop_after)
        throw Error(ErrorCode::kAuthentication, "stopped by the test");
      if (!setback) return {.bytes = count};
      return {.bytes = count, .setback = Setback{.reason = "by chance", .overloaded = source_.draw(2) == 0}};
    }

   private:
    const FaultySource& source_;
  };

  std::size_t draw(std::size_t bound) const {
    const std::lock_guard lock(mutex_);
    return random_.below(bound);
  }

  std::string name_ = "memory";
  std::map<std::string, Bytes> objects_;
  mutable std::mutex mutex_;
  mutable Random random_;
};

/// Shares a source that the test keeps.
class SourceView : public Source {
 public:
  explicit SourceView(FaultySource& source) : source_(source) {}
  const std::string& name() const override { return source_.name(); }
  std::vector<Object> list(const ReadLimits& limits, std::chrono::milliseconds patience) override {
    return source_.list(limits, patience);
  }
  std::unique_ptr<ObjectReader> reader(const ReadLimits& limits) const override { return source_.reader(limits); }

 private:
  FaultySource& source_;
};

/// One object, whose second half arrives when `may_end` is set.
class HaltingSource : public Source {
 public:
  explicit HaltingSource(const std::atomic<bool>& may_end) : may_end_(may_end) {}
  const std::string& name() const override { return name_; }
  std::vector<Object> list(const ReadLimits&, std::chrono::milliseconds) override {
    return {{.name = "a", .size_bytes = 1'000, .version = "1"}};
  }
  std::unique_ptr<ObjectReader> reader(const ReadLimits& limits) const override {
    return std::make_unique<Reader>(limits, may_end_);
  }

 private:
  class Reader : public ObjectReader {
   public:
    Reader(const ReadLimits& limits, const std::atomic<bool>& may_end) : limits_(limits), may_end_(may_end) {}
    ReadOutcome read(const Object&, std::uint64_t, std::span<std::byte> into) override {
      limits_.rate->pass(into.size() / 2, limits_.stop);
      for (int i = 0; i < 1'000 && !may_end_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      limits_.rate->pass(into.size() / 2, limits_.stop);
      return {.bytes = into.size()};
    }

   private:
    ReadLimits limits_;
    const std::atomic<bool>& may_end_;
  };

  std::string name_ = "halting";
  const std::atomic<bool>& may_end_;
};

std::map<std::string, Bytes> files_below(const fs::path& folder) {
  std::map<std::string, Bytes> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).string();
    if (entry.is_regular_file() && !name.starts_with(".gyre-stage")) files[name] = read_file(entry.path(), 1 << 30);
  }
  return files;
}

struct Case {
  Case(std::map<std::string, Bytes> objects, std::uint64_t seed) {
    auto made = std::make_unique<FaultySource>(std::move(objects), seed);
    source = made.get();
    sources.push_back(std::move(made));
  }
  Receipt stage_to(const fs::path& folder, Inflation inflation = Inflation::kNone) {
    const Manifest manifest = make_manifest({{.source = source->name(), .objects = source->list({}, {})}}, inflation);
    return stage(manifest, sources, {.folder = folder, .connections = 3, .memory_bytes = 40 * kMiB});
  }

  FaultySource* source;
  std::vector<std::unique_ptr<Source>> sources;
};

TEST(Stage, BringsEveryByteWhateverFailsAndHoweverOftenItIsStopped) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::map<std::string, Bytes> objects;
    for (int i = 0; i < 20; ++i)
      objects["folder" + std::to_string(i % 3) + "/" + std::to_string(i)] = random_bytes(random, random.below(50'000));
    objects["large"] = random_bytes(random, 64 * kMiB + 1 + random.below(3 * kMiB));
    std::uint64_t total = 0;
    for (const auto& [name, bytes] : objects) total += bytes.size();
    Case it(objects, seed);
    const TemporaryFolder folder;
    int stops = 0;
    for (; stops < 3; ++stops) {
      it.source->stop_after = it.source->given_bytes + random.below(total / 8);
      EXPECT_THROW(it.stage_to(folder.path), Error);
    }
    it.source->stop_after = ~std::uint64_t{0};
    const Receipt receipt = it.stage_to(folder.path);
    EXPECT_TRUE(receipt.complete());
    EXPECT_EQ(files_below(folder.path), objects);
    EXPECT_EQ(receipt.files_fetched + receipt.files_present, objects.size());
    // Each stop loses what three readers had under way, in pieces of 16 MiB.
    EXPECT_LE(it.source->given_bytes, total + static_cast<std::uint64_t>(stops) * 3 * 16 * kMiB);
    it.source->given_bytes = 0;
    EXPECT_EQ(it.stage_to(folder.path).files_present, objects.size());
    EXPECT_EQ(it.source->given_bytes, 0U);
  }
}

TEST(Stage, DecompressesSmallAndLargeObjectsAlike) {
  Random random(1);
  const Bytes contents = random_bytes(random, 70 * kMiB);
  const Bytes zeros(260 * kMiB);  // More than is decompressed in memory.
  Case it({{"large.gz", data::deflate(data::Compression::kGzip, contents, 1)},
           {"small.zz", data::deflate(data::Compression::kZlib, std::span(contents).first(1000))},
           {"zeros.gzip", data::deflate(data::Compression::kGzip, zeros, 1)}},
          1);
  it.source->fails = false;
  const TemporaryFolder folder;
  const Receipt receipt = it.stage_to(folder.path, Inflation::kBySuffix);
  EXPECT_EQ(receipt.checked_gzip, 3U);
  EXPECT_EQ(receipt.written_bytes, contents.size() + zeros.size() + 1000);
  const auto files = files_below(folder.path);
  EXPECT_EQ(files.at("large"), contents);
  EXPECT_EQ(files.at("zeros"), zeros);
  EXPECT_EQ(files.at("small"), Bytes(contents.begin(), contents.begin() + 1000));
  EXPECT_TRUE(fs::is_empty(folder.path / ".gyre-stage/parts"));
}

// A file that only has the name of a compressed one is not damaged: reading it again is no use.
TEST(Stage, SaysOfAFileThatIsNotCompressedWhatItIsAndReadsItOnce) {
  const auto letters = as_bytes("a,b\n1,2\n");
  const Bytes text(letters.begin(), letters.end());
  Case it({{"empty.gz", {}},
           {"large.gz", Bytes(65 * kMiB)},
           {"sound.gz", data::deflate(data::Compression::kGzip, text)},
           {"t.csv.gz", text}},
          1);
  it.source->fails = false;
  const TemporaryFolder folder;
  const Receipt receipt = it.stage_to(folder.path, Inflation::kBySuffix);
  EXPECT_THAT(
      receipt.failed,
      ElementsAre(Pair("empty", HasSubstr("it is empty")), Pair("large", HasSubstr("it begins with 00 00")),
                  Pair("t.csv", AllOf(HasSubstr("t.csv.gz of "),
                                      HasSubstr("is not gzip data, though its name says so: it begins with 61 2c")))));
  EXPECT_EQ(files_below(folder.path), (std::map<std::string, Bytes>{{"sound", text}}));
  EXPECT_EQ(it.source->given_bytes, receipt.stored_bytes);
}

TEST(Stage, BelievesNoLineOfItsLogThatIsDamaged) {
  Random random(2);
  std::map<std::string, Bytes> objects;
  for (int i = 0; i < 5; ++i) objects[std::to_string(i)] = random_bytes(random, 1000);
  Case it(objects, 2);
  for (int trial = 0; trial < 40; ++trial) {
    const TemporaryFolder folder;
    it.source->fails = false;
    it.stage_to(folder.path);
    // One bit of the log, and one file: what the log says must not pass for what is there.
    const fs::path log = folder.path / ".gyre-stage/log";
    Bytes bytes = read_file(log, kMiB);
    bytes[random.below(bytes.size())] ^= static_cast<std::byte>(1U << random.below(8));
    std::ofstream(log, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    std::ofstream(folder.path / "3", std::ios::binary) << "damage";
    EXPECT_TRUE(it.stage_to(folder.path).complete());
    EXPECT_EQ(files_below(folder.path), objects);
  }
}

std::string log_line(const std::string& words) { return fmt::format("{} {:08x}\n", words, crc32c(as_bytes(words))); }

/// How many files a staging takes for present after a power failure that cost the bytes of one of two, whose names,
/// sizes and times are there. `before`, `after`: lines of the log around those of the files.
std::uint64_t files_believed(const std::string& before, const std::string& after) {
  Case it({{"a", Bytes(100, std::byte{1})}, {"b", Bytes(100, std::byte{2})}}, 3);
  it.source->fails = false;
  const TemporaryFolder folder;
  it.stage_to(folder.path);
  const fs::path log = folder.path / ".gyre-stage/log";
  std::ifstream in(log);
  std::string kept = before;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("done ")) kept += line + "\n";
  }
  std::ofstream(log) << kept << after;
  const auto time = fs::last_write_time(folder.path / "a");
  std::ofstream(folder.path / "a", std::ios::binary) << std::string(100, '\0');
  fs::last_write_time(folder.path / "a", time);
  const Receipt receipt = it.stage_to(folder.path);
  EXPECT_EQ(files_below(folder.path).at("a"), Bytes(100, receipt.files_present == 2 ? std::byte{0} : std::byte{1}));
  return receipt.files_present;
}

TEST(Stage, BelievesWhatWasSyncedOrWrittenUnderThisBootAndComparesTheRest) {
  const std::string other = log_line("boot other format 2");
  const std::string ours = log_line("boot " + boot_id() + " format 2");
  const std::string synced = log_line("syncing") + log_line("synced");
  EXPECT_EQ(files_believed(other, ""), 1U);
  EXPECT_EQ(files_believed(ours, ""), 2U);
  EXPECT_EQ(files_believed(other, synced), 2U);
  EXPECT_EQ(files_believed(other, synced + ours + synced), 2U);
  // A later boot's sync, one that had begun before, and one that did not end.
  EXPECT_EQ(files_believed(other, ours + synced), 1U);
  EXPECT_EQ(files_believed(other + log_line("syncing"), log_line("synced")), 1U);
  EXPECT_EQ(files_believed(other, log_line("syncing") + ours + log_line("synced")), 1U);
  // Of an older Gyre, nothing.
  EXPECT_EQ(files_believed(log_line("boot " + boot_id()), synced), 1U);
}

// Until November 2026 a log had no number of its format, and no names: what it says is compared, said and written anew.
TEST(Stage, ComparesWhatAnOlderGyreHasStagedAndSaysSo) {
  std::map<std::string, Bytes> objects = {{"a", Bytes(100)}, {"b", Bytes(200)}, {"c", Bytes(300)}};
  Case it(objects, 5);
  it.source->fails = false;
  const TemporaryFolder folder;
  it.stage_to(folder.path);
  const fs::path log = folder.path / ".gyre-stage/log";
  std::ifstream in(log);
  std::string older = log_line("boot " + boot_id());
  for (std::string line; std::getline(in, line);) {
    // Without the name, and the checksum of the line.
    if (line.starts_with("done ")) older += log_line(line.substr(0, line.rfind(' ', line.rfind(' ') - 1)));
  }
  std::ofstream(log) << older;
  const auto time = fs::last_write_time(folder.path / "b");
  std::ofstream(folder.path / "b", std::ios::binary) << std::string(200, 'x');
  fs::last_write_time(folder.path / "b", time);
  const Receipt receipt = it.stage_to(folder.path);
  EXPECT_THAT(receipt.notes(), ElementsAre(AllOf(HasSubstr("an older Gyre had staged 3 files of this set"),
                                                 HasSubstr("which 2 of them fit; the others were read again"))));
  EXPECT_EQ(receipt.files_present, 2U);
  EXPECT_EQ(files_below(folder.path), objects);
  const Receipt again = it.stage_to(folder.path);
  EXPECT_EQ(again.files_present, 3U);
  EXPECT_THAT(again.notes(), ElementsAre());
  Case other({{"d", Bytes(10)}}, 6);
  other.source->fails = false;
  std::ofstream(log) << older;
  EXPECT_THAT(other.stage_to(folder.path).notes(), Contains(HasSubstr("what it recorded fits no file of this set")));
  std::ofstream(log) << log_line("boot x format 3");
  EXPECT_THAT([&] { it.stage_to(folder.path); }, ThrowsMessage<Error>(HasSubstr("a newer Gyre has staged there")));
}

// Of an object that takes more than one request, the beginning is on the disk when the end arrives.
TEST(Stage, CompletesWhatItHasBegunWithItsChecksum) {
  Random random(9);
  const Bytes contents = random_bytes(random, 5 * kMiB);
  // One at a time: a reader that has met a fast source asks for the next object as a whole.
  for (const auto& [name, stored] : std::map<std::string, Bytes>{
           {"file.gz", data::deflate(data::Compression::kGzip, contents, 1)}, {"file", contents}}) {
    SCOPED_TRACE(name);
    Case it({{name, stored}}, 9);
    it.source->fails = false;
    const TemporaryFolder folder;
    it.stage_to(folder.path, Inflation::kBySuffix);
    EXPECT_EQ(files_below(folder.path).at("file"), contents);
    // What an earlier boot has written counts where it has the checksum of the log.
    const fs::path log = folder.path / ".gyre-stage/log";
    std::ifstream in(log);
    std::string kept = log_line("boot other format 2");
    int beginnings = 0;
    for (std::string line; std::getline(in, line);) {
      beginnings += line.starts_with("beginning ") ? 1 : 0;
      if (line.starts_with("done ")) kept += line + "\n";
    }
    EXPECT_EQ(beginnings, 1);
    std::ofstream(log) << kept;
    EXPECT_EQ(it.stage_to(folder.path, Inflation::kBySuffix).files_present, 1U);
  }
}

// The pieces that the log names were those of another file, which has become the target.
TEST(Stage, ReadsAllPiecesAgainWhereTheTargetIsGone) {
  Random random(7);
  const std::map<std::string, Bytes> objects = {{"large", random_bytes(random, 80 * kMiB)}};
  Case it(objects, 7);
  it.source->fails = false;
  const TemporaryFolder folder;
  it.stage_to(folder.path);
  for (int round = 0; round < 3; ++round) {
    fs::remove(folder.path / "large");
    it.source->stop_after = it.source->given_bytes + (random.below(60) + 20) * kMiB;
    EXPECT_THROW(it.stage_to(folder.path), Error);
    it.source->stop_after = ~std::uint64_t{0};
    EXPECT_TRUE(it.stage_to(folder.path).complete());
    EXPECT_EQ(files_below(folder.path), objects);
  }
}

// A loader takes all files of a folder: those that the source has deleted would be trained on.
TEST(Stage, RemovesWhatItHasBroughtAndTheSetNoLongerHas) {
  const auto some = [](std::vector<std::string> names) {
    std::map<std::string, Bytes> objects;
    for (std::string& name : names) objects.emplace(std::move(name), Bytes(10));
    return objects;
  };
  const TemporaryFolder folder;
  const auto bring = [&](const std::vector<std::string>& names, Leftovers rule, const std::string& selection = "") {
    Case it(some(names), 1);
    it.source->fails = false;
    const Manifest manifest =
        make_manifest({{.source = it.source->name(), .objects = it.source->list({}, {})}}, Inflation::kNone);
    return stage(manifest, it.sources, {.folder = folder.path, .leftovers = rule, .selection = selection}).leftovers;
  };
  EXPECT_THAT(bring({"1", "2", "changed", "d/e/3"}, Leftovers::kRemoveOfTheSet).others, ElementsAre());
  std::ofstream(folder.path / "mine") << "never staged";
  std::ofstream(folder.path / "changed") << "by somebody else";
  const FoundLeftovers kept = bring({"1"}, Leftovers::kStay);
  EXPECT_THAT(kept.removed, ElementsAre());
  EXPECT_THAT(kept.others, ElementsAre("2", "changed", "d/e/3", "mine"));
  const FoundLeftovers gone = bring({"1", "2"}, Leftovers::kRemoveOfTheSet);
  EXPECT_THAT(gone.removed, ElementsAre("d/e/3"));
  EXPECT_THAT(gone.others, ElementsAre("changed", "mine"));
  EXPECT_FALSE(fs::exists(folder.path / "d"));
  // Other objects of the same source are another set: two sets may lie in one folder.
  EXPECT_THAT(bring({"1"}, Leftovers::kRemoveOfTheSet, "*1").removed, ElementsAre());
  EXPECT_THAT(bring({"1"}, Leftovers::kRemoveAll, "*1").removed, ElementsAre("2"));
  EXPECT_THAT(files_below(folder.path), testing::SizeIs(3));
}

TEST(LocalSource, NamesALinkToAFileThatIsNotThere) {
  const TemporaryFolder folder;
  fs::create_symlink("gone.bin", folder.path / "link");
  try {
    open_local_source(folder.path)->list({}, {});
    ADD_FAILURE() << "the link was listed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("link is a link to gone.bin, which is not there"));
  }
}

TEST(Stage, goes_on_inside_an_object_that_was_under_way) {
  // On a slow link the beginnings of some large objects are all that has arrived after minutes.
  TemporaryFolder folder;
  Random random(7);
  const Bytes object = random_bytes(random, 24 * kMiB);
  FaultySource source({{"a", object}}, 1);
  source.fails = false;
  source.stop_after = 20 * kMiB;
  const Manifest manifest =
      make_manifest({{.source = source.name(), .objects = source.list({}, {})}}, Inflation::kNone);
  const auto run = [&] {
    std::vector<std::unique_ptr<Source>> sources;
    sources.push_back(std::make_unique<SourceView>(source));
    return stage(manifest, sources, {.folder = folder.path, .connections = 1});
  };
  EXPECT_THROW(run(), Error);
  source.stop_after = ~std::uint64_t{0};
  const Receipt receipt = run();
  EXPECT_EQ(receipt.reused_bytes, 2 * kMiB);
  EXPECT_EQ(receipt.read_bytes, 22 * kMiB);
  EXPECT_EQ(files_below(folder.path).at("a"), object);
}

TEST(Stage, counts_bytes_while_they_arrive) {
  TemporaryFolder folder;
  std::atomic<bool> seen{false};
  std::vector<std::unique_ptr<Source>> sources;
  sources.push_back(std::make_unique<HaltingSource>(seen));
  const Manifest manifest =
      make_manifest({{.source = "halting", .objects = sources.front()->list({}, {})}}, Inflation::kNone);
  const Receipt receipt = stage(manifest, sources, {.folder = folder.path, .tick = [&](const StageProgress& progress) {
                                                      if (progress.done_bytes == 500) seen = true;
                                                      return true;
                                                    }});
  EXPECT_TRUE(seen);
  EXPECT_TRUE(receipt.complete());
}

TEST(Crew, reports_the_failure_that_stopped_it) {
  // Those that are stopped by it fail, too: "was stopped" would hide why.
  for (int round = 0; round < 50; ++round) {
    Crew crew;
    for (int i = 0; i < 8; ++i) {
      crew.start("waiting", [stop = crew.stop()] {
        while (!stop.stop_requested()) std::this_thread::yield();
        throw Error(ErrorCode::kAborted, "was stopped");
      });
    }
    crew.start("failing", [] { throw Error(ErrorCode::kAuthentication, "the cause"); });
    while (!crew.wait(std::chrono::milliseconds(1'000))) {
    }
    try {
      std::rethrow_exception(crew.failure());
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kAuthentication);
    }
  }
}

}  // namespace
}  // namespace gyre::store
