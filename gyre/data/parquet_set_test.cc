// Files that pyarrow has written must be read to the last bit, whatever their columns, compression and row groups; a
// row group is dear, and must be decoded once and not for each of its rows; damage must be an error that names its
// place, and never a crash. The files are made by tests/data/parquet/make.py: row i holds what follows from i.
#include "gyre/data/parquet_set.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/data/fields.h"
#include "gyre/data/open_samples.h"
#include "gyre/data/tar_test_support.h"

namespace gyre::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kRows = 10;

std::string golden(const std::string& name) { return std::string(GYRE_TEST_DATA) + "/parquet/" + name + ".parquet"; }

std::string contents_of(const std::string& name) {
  return std::string(as_text(read_file(golden(name), std::uint64_t{1} << 20)));
}

std::shared_ptr<const SampleSet> open_golden(const std::string& name, std::vector<std::string> columns = {}) {
  return open_parquet({golden(name)}, open_local_file, {.columns = std::move(columns)});
}

/// A file's contents in memory, and how many of its bytes have been read.
struct Counted {
  std::string contents;
  std::atomic<std::uint64_t> read_bytes{0};

  FileOpener opener() {
    return [this](const std::string& name) { return std::make_unique<File>(*this, name); };
  }

 private:
  struct File : public testing::MemoryFile {
    File(Counted& counted_by, const std::string& name)
        : testing::MemoryFile(name, counted_by.contents), counted(counted_by) {}
    void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
      counted.read_bytes += into.size();
      testing::MemoryFile::read_at(offset_bytes, into);
    }
    Counted& counted;
  };
};

std::vector<std::int64_t> ints_of(const Example& sample, const std::string& name) {
  std::vector<std::int64_t> values(sample.find(name)->count());
  EXPECT_TRUE(sample.find(name)->copy_ints(values));
  return values;
}

std::vector<float> floats_of(const Example& sample, const std::string& name) {
  std::vector<float> values(sample.find(name)->count());
  EXPECT_TRUE(sample.find(name)->copy_floats(values));
  return values;
}

std::vector<std::string> texts_of(const Example& sample, const std::string& name) {
  std::vector<std::string> texts;
  for (const auto value : sample.find(name)->bytes()) texts.emplace_back(as_text(value));
  return texts;
}

/// What reading every row says, in order of the rows.
std::string error_of(const std::function<std::shared_ptr<const SampleSet>()>& open,
                     const std::shared_ptr<MemoryBudget>& budget = nullptr) {
  try {
    const auto set = open();
    const auto reader = set->make_reader(budget);
    StageTimes times;
    for (std::uint64_t i = 0; i < set->count(); ++i) static_cast<void>(reader->read_sample(i, times));
  } catch (const Error& error) {
    return fmt::format("{}: {}", error_code_name(error.code()), error.what());
  }
  return "no error";
}

std::string error_of_column(const std::string& name) {
  return error_of([&] { return open_golden("refused", {name}); });
}

class EveryCompression : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryCompression, numbers_of_every_width_are_read) {
  const auto set = open_golden(GetParam());
  ASSERT_EQ(set->count(), kRows);
  const auto reader = set->make_reader(nullptr);
  StageTimes times;
  for (std::uint64_t row = 0; row < kRows; ++row) {
    const Example sample = reader->read_sample(row, times);
    const auto i = static_cast<std::int64_t>(row);
    for (const int bits : {8, 16, 32, 64}) {
      EXPECT_THAT(ints_of(sample, fmt::format("int{}", bits)), ElementsAre(i - 5));
      EXPECT_THAT(ints_of(sample, fmt::format("uint{}", bits)), ElementsAre(i));
    }
    EXPECT_THAT(ints_of(sample, "flag"), ElementsAre(i % 3 == 0 ? 1 : 0));
    const auto value = static_cast<float>(i);
    EXPECT_THAT(floats_of(sample, "half"), ElementsAre(value - 0.5F));
    EXPECT_THAT(floats_of(sample, "float"), ElementsAre(value + 0.25F));
    EXPECT_THAT(floats_of(sample, "double"), ElementsAre(value + 0.125F));
  }
}

TEST_P(EveryCompression, strings_are_read_from_dictionaries_and_structs_too) {
  const auto set = open_golden(GetParam());
  const auto reader = set->make_reader(nullptr);
  StageTimes times;
  constexpr std::array kColours = {"red", "green", "blue"};
  for (std::uint64_t i = 0; i < kRows; ++i) {
    const Example sample = reader->read_sample(i, times);
    const auto byte = static_cast<char>(i);
    EXPECT_THAT(texts_of(sample, "binary"), ElementsAre(std::string(i, byte)));
    EXPECT_THAT(texts_of(sample, "text"), ElementsAre(fmt::format("row {}", i)));
    EXPECT_THAT(texts_of(sample, "large_text"), ElementsAre(fmt::format("row {}", i)));
    const std::string fixed{byte, static_cast<char>(i + 1), static_cast<char>(i + 2)};
    EXPECT_THAT(texts_of(sample, "fixed_binary"), ElementsAre(fixed));
    EXPECT_THAT(texts_of(sample, "choice"), ElementsAre(kColours.at(i % kColours.size())));
    EXPECT_THAT(texts_of(sample, "words"), ElementsAre(std::to_string(i), "", "end"));
    for (const char* name : {"image", "image.bytes"}) {
      EXPECT_THAT(texts_of(sample, name), ElementsAre(fmt::format("picture {}", i)));
    }
    EXPECT_THAT(texts_of(sample, "image.path"), ElementsAre(fmt::format("{}.png", i)));
  }
}

TEST_P(EveryCompression, lists_and_lists_of_lists_are_read) {
  const auto set = open_golden(GetParam());
  const auto reader = set->make_reader(nullptr);
  StageTimes times;
  for (std::uint64_t row = 0; row < kRows; ++row) {
    const Example sample = reader->read_sample(row, times);
    const auto i = static_cast<std::int64_t>(row);
    std::vector<float> list;
    for (std::uint64_t k = 0; k < row % 3; ++k) list.push_back(static_cast<float>(row + k));
    EXPECT_EQ(floats_of(sample, "list"), list);
    EXPECT_THAT(ints_of(sample, "large_list"), ElementsAre(i, -i));
    EXPECT_THAT(ints_of(sample, "volume"), ElementsAre(i, i + 1, i + 2, i + 3));
    EXPECT_EQ(sample.find("volume")->numbers()->type, NumberType::kInt16);
    EXPECT_THAT(ints_of(sample, "matrix"), ElementsAre(i, 1, 2, i, 3, 3));
    EXPECT_THAT(sample.find("matrix")->numbers()->extents, ElementsAre(3U, 2U));
    EXPECT_THAT(ints_of(sample, "flags"), ElementsAre(i % 2 == 0 ? 1 : 0, i % 2));
  }
}

INSTANTIATE_TEST_SUITE_P(Parquet, EveryCompression,
                         ::testing::Values("none", "snappy", "gzip", "zstd", "brotli", "lz4", "checked"),
                         [](const auto& test) { return test.param; });

// A field says what a tensor looks like; a column that lies otherwise must not be poured into it.
TEST(ParquetSet, numbers_fill_fields_of_their_type_and_shape) {
  const auto set = open_golden("snappy");
  const auto reader = set->make_reader(nullptr);
  StageTimes times;
  const Example sample = reader->read_sample(7, times);
  const auto decode = [&](const std::string& name, ElementType stored, std::vector<std::uint64_t> shape) {
    const FieldDecoder decoder({{.name = name, .stored = stored, .type = stored, .shape = std::move(shape)}});
    std::vector<std::byte> bytes(decoder.sample_bytes(0));
    FieldScratch scratch;
    StageClock clock(times);
    const std::array<std::span<std::byte>, 1> into = {std::span(bytes)};
    decoder.decode(sample, {}, scratch, clock, into);
    return bytes;
  };
  std::array<std::int16_t, 4> volume{};
  std::memcpy(volume.data(), decode("volume", ElementType::kInt16, {2, 2}).data(), sizeof(volume));
  EXPECT_THAT(volume, ElementsAre(7, 8, 9, 10));
  std::array<std::int64_t, 6> matrix{};
  std::memcpy(matrix.data(), decode("matrix", ElementType::kInt64, {3, 2}).data(), sizeof(matrix));
  EXPECT_THAT(matrix, ElementsAre(7, 1, 2, 7, 3, 3));
  EXPECT_EQ(decode("matrix", ElementType::kInt64, {6}).size(), sizeof(matrix));
  const auto problem = [&](const std::string& name, ElementType stored, std::vector<std::uint64_t> shape) {
    return error_of([&]() -> std::shared_ptr<const SampleSet> {
      decode(name, stored, std::move(shape));
      return nullptr;
    });
  };
  EXPECT_THAT(problem("matrix", ElementType::kInt64, {2, 3}), HasSubstr("have the shape [3, 2], and the field [2, 3]"));
  EXPECT_THAT(problem("volume", ElementType::kInt32, {4}), HasSubstr("holds integers (int16) there, not bytes"));
  EXPECT_THAT(problem("volume", ElementType::kInt16, {5}), HasSubstr("holds 8 bytes there"));
}

// A column that nobody asks for costs nothing: sets of images are often scored by their labels alone.
TEST(ParquetSet, only_columns_that_are_asked_for_are_read) {
  Counted all{contents_of("none")};
  Counted one{contents_of("none")};
  const auto read = [](Counted& counted, std::vector<std::string> columns) {
    const auto set = open_parquet({"f"}, counted.opener(), {.columns = std::move(columns)});
    counted.read_bytes = 0;
    const auto reader = set->make_reader(nullptr);
    StageTimes times;
    for (std::uint64_t i = 0; i < set->count(); ++i) {
      const Example sample = reader->read_sample(i, times);
      EXPECT_THAT(ints_of(sample, "int32"), ElementsAre(static_cast<std::int64_t>(i) - 5));
    }
    return reader->read_sample(0, times).names().size();
  };
  EXPECT_EQ(read(one, {"int32", "image", "image.bytes"}), 3U);
  EXPECT_GT(read(all, {}), 20U);
  const std::uint64_t footers = one.contents.size();  // Whose last 64 KB are read at once.
  EXPECT_LT(one.read_bytes - footers, (all.read_bytes - footers) / 4);
}

// Rows of one row group in any order, from several threads, are decoded once.
TEST(ParquetSet, a_row_group_is_decoded_once_for_all_readers_of_a_budget) {
  Counted counted{contents_of("none")};
  const auto set = open_parquet({"f"}, counted.opener(), {.columns = {"text", "volume"}});
  EXPECT_EQ(*set->blocks().ends, (std::vector<std::uint64_t>{4, 8, 10}));
  const auto budget = std::make_shared<MemoryBudget>(1 << 20);
  std::vector<std::unique_ptr<SampleReader>> readers;
  for (int i = 0; i < 4; ++i) readers.push_back(set->make_reader(budget));
  StageTimes times;
  for (const std::uint64_t row : {9, 0, 5}) static_cast<void>(readers[0]->read_sample(row, times));
  const std::uint64_t once = counted.read_bytes;
  std::vector<std::thread> threads;
  threads.reserve(readers.size());
  for (const auto& reader : readers) {
    threads.emplace_back([&reader] {
      StageTimes own;
      for (std::uint64_t i = 0; i < 20 * kRows; ++i) {
        const std::uint64_t row = i * 7 % kRows;
        EXPECT_THAT(texts_of(reader->read_sample(row, own), "text"), ElementsAre(fmt::format("row {}", row)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counted.read_bytes, once);
  EXPECT_LE(budget->used_bytes(), budget->total_bytes());
  readers.clear();
  EXPECT_EQ(budget->used_bytes(), 0U);
}

// The budget is a promise; a set that does not fit into it is still read, from several threads at once.
TEST(ParquetSet, row_groups_leave_memory_that_others_need) {
  std::shared_ptr<const SampleSet> set = open_golden("snappy");
  const auto given = [&] { return set; };
  // Finds the least budget with which one reader gets through, which holds one row group only.
  std::uint64_t least = 1 << 10;
  while (error_of(given, std::make_shared<MemoryBudget>(least)) != "no error") least += least / 8;
  EXPECT_LT(least, 4U << 20);
  const auto budget = std::make_shared<MemoryBudget>(least + (64 << 10));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint64_t stride = 1; stride <= 4; ++stride) {
    threads.emplace_back([&, stride] {
      const auto reader = set->make_reader(budget);
      StageTimes times;
      for (std::uint64_t i = 0; i < 60; ++i) {
        const std::uint64_t row = i * (2 * stride + 1) % kRows;
        if (texts_of(reader->read_sample(row, times), "text") != std::vector{fmt::format("row {}", row)}) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(budget->used_bytes(), 0U);
}

TEST(ParquetSet, a_row_group_beyond_the_budget_says_what_to_change) {
  EXPECT_THAT(error_of([] { return open_golden("snappy"); }, std::make_shared<MemoryBudget>(2000)),
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("snappy.parquet: row group 0, of 4 rows, does not fit"),
                    HasSubstr("half of the memory budget")));
}

TEST(ParquetSet, a_full_shuffle_of_more_than_fits_is_advised_against) {
  const auto set = open_golden("none");
  EXPECT_EQ(set->advice_on_full_shuffle(1 << 20), "");
  EXPECT_THAT(set->advice_on_full_shuffle(1 << 10),
              AllOf(HasSubstr("decode a row group of up to 4 rows anew"), HasSubstr("shuffle in blocks")));
}

TEST(ParquetSet, files_follow_each_other_and_are_told_by_content) {
  const auto set = open_samples({golden("zstd"), golden("gzip")}, open_local_file, {.features = {"text", "int64"}});
  ASSERT_EQ(set->count(), 2 * kRows);
  const auto reader = set->make_reader(nullptr);
  StageTimes times;
  const Example sample = reader->read_sample(13, times);
  EXPECT_THAT(texts_of(sample, "text"), ElementsAre("row 3"));
  EXPECT_THAT(sample.names(), ElementsAre("text", "int64"));
  EXPECT_THAT(reader->position(), AllOf(HasSubstr("gzip.parquet"), HasSubstr("row 3 (row 3 of row group 0)")));
}

TEST(ParquetSet, what_no_tensor_can_hold_is_named_with_row_and_column) {
  EXPECT_EQ(error_of_column("good"), "no error");
  EXPECT_THAT(
      error_of_column("null"),
      AllOf(HasSubstr("CORRUPT_DATA"), HasSubstr("row 1 (row 1 of row group 0), column 'null': a value is null")));
  EXPECT_THAT(error_of_column("null_within"),
              HasSubstr("row 1 (row 1 of row group 0), column 'null_within': a value is"));
  EXPECT_THAT(error_of_column("null_struct.a"), HasSubstr("column 'null_struct.a': a value is null"));
  EXPECT_THAT(error_of_column("ragged"), HasSubstr("the lists within one value have 1 and 2 elements"));
  EXPECT_THAT(error_of_column("when"),
              HasSubstr("UNSUPPORTED: " + golden("refused") + ": column 'when' is of the type timestamp"));
  EXPECT_THAT(error_of_column("pairs"), HasSubstr("of the type map"));
  EXPECT_THAT(error_of_column("structs"), HasSubstr("of the type list of structs"));
  EXPECT_THAT(error_of_column("other"),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("has no column 'other'; it has: good, null")));
  EXPECT_THAT(error_of([] { return open_golden("no_rows"); }), HasSubstr("hold no row"));
  const auto reader = open_golden("refused", {"huge"});
  StageTimes times;
  std::array<std::int64_t, 1> value{};
  EXPECT_THROW(static_cast<void>(reader->make_reader(nullptr)->read_sample(1, times).find("huge")->copy_ints(value)),
               Error);
}

TEST(ParquetSet, files_that_are_cut_off_or_something_else_are_named) {
  const std::string whole = contents_of("snappy");
  const auto problem = [](const std::string& contents) {
    return error_of([&] {
      return open_parquet(
          {"f"}, [&](const std::string& name) { return std::make_unique<testing::MemoryFile>(name, contents); }, {});
    });
  };
  EXPECT_EQ(problem(whole), "no error");
  EXPECT_EQ(problem(""), "CORRUPT_DATA: f is not a Parquet file: it has 0 bytes");
  EXPECT_THAT(problem("something else entirely"), HasSubstr("f is not a Parquet file: it does not begin with PAR1"));
  EXPECT_THAT(problem("PARE" + whole.substr(4)), HasSubstr("UNSUPPORTED: f is an encrypted Parquet file"));
  for (std::size_t size = 12; size < whole.size(); size += 97) {
    EXPECT_THAT(problem(whole.substr(0, size)), HasSubstr("CORRUPT_DATA: f is cut off"));
  }
  // The footer is whole, but what it refers to is not.
  EXPECT_THAT(problem("PAR1" + whole.substr(whole.size() - 7000)), HasSubstr("CORRUPT_DATA: f"));
  std::string long_footer = whole;
  long_footer.replace(whole.size() - 8, 4, "\xff\xff\xff\x7f");
  EXPECT_THAT(problem(long_footer), HasSubstr("f: its footer cannot be read"));
}

// Wherever a bit is wrong, reading ends: with values, where nothing can tell, or with an error that names the file.
TEST(ParquetSet, flipped_bits_are_errors_and_never_crashes) {
  const std::string whole = contents_of("checked");
  std::size_t noticed = 0;
  std::size_t tried = 0;
  for (std::size_t place = 4; place < whole.size(); place += 67, ++tried) {
    std::string damaged = whole;
    damaged[place] = static_cast<char>(damaged[place] ^ 0x10);
    const std::string problem = error_of(
        [&] {
          return open_parquet(
              {"f"}, [&](const std::string& name) { return std::make_unique<testing::MemoryFile>(name, damaged); }, {});
        },
        std::make_shared<MemoryBudget>(64 << 20));
    if (problem == "no error") continue;
    ++noticed;
    EXPECT_THAT(problem, ::testing::HasSubstr(": f")) << "byte " << place;
  }
  EXPECT_GT(noticed, tried / 3);
}

TEST(ParquetSet, a_page_whose_checksum_is_wrong_is_named_by_row_group_and_column) {
  std::string damaged = contents_of("checked");
  const std::size_t place = damaged.find("picture 5");
  ASSERT_NE(place, std::string::npos);
  damaged[place] = 'P';
  EXPECT_THAT(error_of([&] {
                return open_parquet(
                    {"f"},
                    [&](const std::string& name) { return std::make_unique<testing::MemoryFile>(name, damaged); }, {});
              }),
              AllOf(HasSubstr("CORRUPT_DATA: f: row group 1, column 'image.bytes'"), HasSubstr("CRC")));
}

// The disk's own complaint must reach the user, not what Arrow makes of it.
TEST(ParquetSet, an_error_of_the_file_itself_comes_through) {
  struct Failing : public testing::MemoryFile {
    using testing::MemoryFile::MemoryFile;
    void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
      if (offset_bytes > 4 && offset_bytes < 3000) throw Error(ErrorCode::kIo, "the disk of " + name() + " is gone");
      testing::MemoryFile::read_at(offset_bytes, into);
    }
  };
  EXPECT_EQ(error_of([] {
              return open_parquet(
                  {"f"}, [](const std::string& name) { return std::make_unique<Failing>(name, contents_of("snappy")); },
                  {});
            }),
            "IO: the disk of f is gone");
}

}  // namespace
}  // namespace gyre::data
