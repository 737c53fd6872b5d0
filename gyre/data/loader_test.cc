// What a batch holds must follow from the options alone, whatever the threads do; and a loader ends, fails and gives
// its memory back whenever its caller likes.
#include "gyre/data/loader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/formats/jpeg.h"
#include "gyre/data/image_test_support.h"
#include "gyre/data/record_files_test_support.h"
#include "gyre/data/record_set.h"

namespace gyre::data {
namespace {

using ::testing::HasSubstr;
using testing::RecordFiles;

const std::vector<Field> kFields = {
    {.name = "x", .stored = ElementType::kInt16, .type = ElementType::kInt16, .shape = {2, 4}},
    {.name = "label", .kind = FeatureKind::kInts, .type = ElementType::kInt64, .shape = {}},
};

std::shared_ptr<const RecordSet> open_set(const RecordFiles& files) {
  return std::make_shared<RecordSet>(files.names(), open_local_file, RecordSetOptions{});
}

LoaderOptions options_of(std::uint64_t batch, int threads, int ranks = 1, int rank = 0) {
  LoaderOptions options;
  options.sampling = {.seed = 11, .ranks = ranks, .batch_per_rank = batch};
  options.rank = rank;
  options.threads = threads;
  return options;
}

/// The labels of a batch; checks that "x" belongs to them.
std::vector<std::int64_t> labels_of(const Batch& batch) {
  const auto bytes = batch.field(1);
  std::vector<std::int64_t> labels(bytes.size() / sizeof(std::int64_t));
  std::memcpy(labels.data(), bytes.data(), bytes.size());
  const auto x = batch.field(0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.data()) % 64, 0U);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      std::int16_t value = 0;
      std::memcpy(&value, x.data() + (i * 8 + j) * sizeof(value), sizeof(value));
      EXPECT_EQ(value, labels[i]);
    }
  }
  return labels;
}

std::vector<std::int64_t> epoch_of(Loader& loader, std::uint64_t epoch, std::uint64_t first_step = 0) {
  std::vector<std::int64_t> all;
  loader.start_epoch(epoch, first_step);
  while (const auto batch = loader.next()) {
    const auto labels = labels_of(*batch);
    all.insert(all.end(), labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(batch->samples().counted));
  }
  return all;
}

TEST(Loader, batches_follow_the_samplers_order_whatever_the_threads) {
  RecordFiles files;
  files.add(20, Compression::kGzip);
  files.add(17);
  const auto set = open_set(files);
  const auto order = epoch_permutation(37, 11, 2);
  for (const int threads : {1, 2, 5}) {
    Loader loader(set, kFields, options_of(4, threads));
    EXPECT_EQ(loader.steps(), 10U);
    EXPECT_THAT(epoch_of(loader, 2), ::testing::ElementsAreArray(order)) << threads << " threads";
  }
}

TEST(Loader, ranks_share_an_epoch_and_see_each_sample_once) {
  RecordFiles files;
  files.add(30);
  const auto set = open_set(files);
  std::vector<std::int64_t> all;
  for (int rank = 0; rank < 3; ++rank) {
    Loader loader(set, kFields, options_of(4, 2, 3, rank));
    const auto labels = epoch_of(loader, 0);
    all.insert(all.end(), labels.begin(), labels.end());
  }
  std::ranges::sort(all);
  ASSERT_EQ(all.size(), 30U);
  for (std::int64_t i = 0; i < 30; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
}

TEST(Loader, an_epoch_goes_on_at_any_step_exactly_where_it_stood) {
  RecordFiles files;
  files.add(40, Compression::kGzip);
  const auto set = open_set(files);
  Loader loader(set, kFields, options_of(4, 3));
  const auto whole = epoch_of(loader, 5);
  for (std::uint64_t step = 0; step <= loader.steps(); ++step) {
    const auto rest = epoch_of(loader, 5, step);
    EXPECT_THAT(rest, ::testing::ElementsAreArray(whole.begin() + static_cast<std::ptrdiff_t>(step * 4), whole.end()));
  }
  EXPECT_THROW(loader.start_epoch(5, loader.steps() + 1), Error);
}

// A job that has lost a rank goes on with all samples.
TEST(Loader, the_rest_of_an_epoch_can_be_shared_among_fewer_ranks) {
  RecordFiles files;
  files.add(41, Compression::kGzip);
  const auto set = open_set(files);
  std::vector<std::int64_t> all;
  for (const int rank : {0, 2}) {
    Loader loader(set, kFields, options_of(4, 2, 3, rank));
    loader.start_epoch(0);
    const auto first = labels_of(*loader.next());  // Of 12.
    all.insert(all.end(), first.begin(), first.end());
    loader.share_among(rank / 2, 2);
    EXPECT_EQ(loader.steps(), 6U) << "of whole epochs";
    EXPECT_THROW(loader.next(), Error) << "the epoch before has ended";
    EXPECT_EQ(loader.start_epoch_at(0, 12), 4U);
    while (const auto batch = loader.next()) {
      const auto labels = labels_of(*batch);
      all.insert(all.end(), labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(batch->samples().counted));
    }
  }
  std::ranges::sort(all);
  EXPECT_EQ(all.size(), 41U - 4U) << "but for what rank 1 had";
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
  Loader loader(set, kFields, options_of(4, 2, 3, 0));
  EXPECT_THROW(loader.share_among(2, 2), Error);
}

TEST(Loader, an_epoch_goes_on_at_any_sample_whatever_the_batches_were) {
  RecordFiles files;
  files.add(41, Compression::kGzip);
  const auto set = open_set(files);
  Loader loader(set, kFields, options_of(4, 3));
  const auto whole = epoch_of(loader, 5);
  for (std::uint64_t position = 0; position <= 41; position += 1 + position / 3) {
    EXPECT_EQ(loader.start_epoch_at(5, position), (41 - position + 3) / 4);
    std::vector<std::int64_t> rest;
    for (std::uint64_t step = 0; const auto batch = loader.next(); ++step) {
      EXPECT_EQ(batch->step(), step);
      const auto labels = labels_of(*batch);
      rest.insert(rest.end(), labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(batch->samples().counted));
    }
    EXPECT_THAT(rest, ::testing::ElementsAreArray(whole.begin() + static_cast<std::ptrdiff_t>(position), whole.end()));
  }
  EXPECT_THROW(loader.start_epoch_at(5, 42), Error);
  EXPECT_THAT(epoch_of(loader, 5), ::testing::ElementsAreArray(whole)) << "a whole epoch has its steps again";
}

/// ImageNet's layout, in one file: image i is i's picture, and its label counts from 1.
std::string write_images(const RecordFiles& files, std::uint64_t count) {
  std::vector<Bytes> payloads;
  for (std::uint64_t i = 0; i < count; ++i) {
    ExampleWriter writer;
    const auto side = static_cast<std::uint32_t>(40 + 7 * i);
    writer.add_bytes("image/encoded", encode_jpeg(testing::test_picture(side, 60).view(), 90));
    writer.add_ints("image/class/label", std::array{static_cast<std::int64_t>(i + 1)});
    payloads.push_back(writer.take());
  }
  const std::string path = files.path("images.tfrecord");
  write_tfrecords(path, payloads, Compression::kNone);
  return path;
}

std::vector<Field> image_fields() {
  return {{.name = "image",
           .type = ElementType::kFloat32,
           .shape = {3, 16, 16},
           .feature = "image/encoded",
           .image = ImageOptions{.width = 16, .height = 16, .augment = true}},
          {.name = "label",
           .kind = FeatureKind::kInts,
           .type = ElementType::kInt64,
           .shape = {},
           .feature = "image/class/label",
           .offset = -1}};
}

/// By label: the bytes of the image.
std::map<std::int64_t, std::string> images_of(Loader& loader, std::uint64_t epoch) {
  std::map<std::int64_t, std::string> images;
  loader.start_epoch(epoch);
  while (const auto batch = loader.next()) {
    for (std::size_t i = 0; i < batch->samples().counted; ++i) {
      std::int64_t label = -1;
      std::memcpy(&label, batch->field(1).data() + i * sizeof(label), sizeof(label));
      const std::size_t bytes = std::size_t{3} * 16 * 16 * sizeof(float);
      images[label] = std::string(as_text(batch->field(0).subspan(i * bytes, bytes)));
    }
  }
  return images;
}

TEST(Loader, images_are_augmented_by_seed_epoch_and_sample_whatever_threads_ranks_and_batches_are) {
  RecordFiles files;
  const auto set =
      std::make_shared<RecordSet>(std::vector{write_images(files, 12)}, open_local_file, RecordSetOptions{});
  Loader one(set, image_fields(), options_of(4, 1));
  const auto expected = images_of(one, 3);
  ASSERT_EQ(expected.size(), 12U);
  EXPECT_EQ(expected.begin()->first, 0);
  EXPECT_NE(images_of(one, 4), expected);
  Loader many(set, image_fields(), options_of(3, 5));
  EXPECT_EQ(images_of(many, 3), expected);
  std::map<std::int64_t, std::string> shared;
  for (int rank = 0; rank < 2; ++rank) {
    Loader part(set, image_fields(), options_of(2, 2, 2, rank));
    shared.merge(images_of(part, 3));
  }
  EXPECT_EQ(shared, expected);
  const StageTimes worked = many.ledger().worked;
  EXPECT_GT(worked.spent[static_cast<std::size_t>(Stage::kTransform)].count(), 0);
  EXPECT_GT(worked.spent[static_cast<std::size_t>(Stage::kDecode)].count(), 0);
}

TEST(Loader, damaged_samples_are_replaced_by_others_that_do_not_count) {
  RecordFiles files;
  files.add(6);
  std::vector<Bytes> records;
  for (std::int64_t i = 0; i < 5; ++i) {
    ExampleWriter writer;
    writer.add_ints("label", std::array{i});  // Without "x".
    records.push_back(writer.take());
  }
  write_tfrecords(files.path("damaged"), records, Compression::kNone);
  const auto set = std::make_shared<RecordSet>(std::vector{files.path("damaged"), files.names()[0]}, open_local_file,
                                               RecordSetOptions{});
  LoaderOptions options = options_of(4, 3);
  options.sampling.shuffling = Shuffling::kNone;
  EXPECT_THROW(Loader(set, kFields, options), Error);
  options.replace_damaged = true;
  Loader loader(set, kFields, options);
  // Samples 0 to 4 are damaged, 5 to 10 have the labels 0 to 5.
  // Their replacements stand behind the samples that count, so that none counts twice.
  EXPECT_THAT(epoch_of(loader, 0), ::testing::ElementsAre(2, 0, 1, 3, 4, 5));
  EXPECT_EQ(loader.ledger().damaged, 5U);
  EXPECT_THAT(loader.ledger().first_damage, HasSubstr("damaged, record 0"));
}

// The distances 1, 3, 7 … modulo 6 lead to two other samples only.
TEST(Loader, one_good_sample_anywhere_takes_the_place_of_all_others) {
  RecordFiles files;
  for (const std::int64_t count : {1, 2, 6, 7, 40}) {
    for (std::int64_t good = -1; good < count; ++good) {
      std::vector<Bytes> records;
      for (std::int64_t i = 0; i < count; ++i) {
        ExampleWriter writer;
        writer.add_ints("label", std::array{i});
        const std::vector<std::int16_t> x(8, static_cast<std::int16_t>(i));
        if (i == good) writer.add_bytes("x", std::as_bytes(std::span(x)));
        records.push_back(writer.take());
      }
      const std::string path = files.path("good");
      write_tfrecords(path, records, Compression::kNone);
      const auto set = std::make_shared<RecordSet>(std::vector{path}, open_local_file, RecordSetOptions{});
      LoaderOptions options = options_of(1, 2);
      options.replace_damaged = true;
      try {
        Loader loader(set, kFields, options);
        EXPECT_GE(good, 0);
        EXPECT_THAT(epoch_of(loader, 0), ::testing::ElementsAre(good));
      } catch (const Error& error) {
        EXPECT_EQ(good, -1) << error.what();
        EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
        EXPECT_THAT(error.what(), HasSubstr("has no feature 'x'"));
        const std::string all = count > 1 ? fmt::format("all {} samples are damaged", count) : "";
        EXPECT_THAT(error.what(), HasSubstr(all));
      }
    }
  }
}

TEST(Loader, an_image_that_cannot_be_decoded_is_named_with_file_record_and_place) {
  RecordFiles files;
  ExampleWriter writer;
  writer.add_bytes("image/encoded", as_bytes("<html>"));
  writer.add_ints("image/class/label", std::array<std::int64_t, 1>{1});
  const std::string path = files.path("damaged.tfrecord");
  write_tfrecords(path, std::array{writer.take()}, Compression::kNone);
  const auto set = std::make_shared<RecordSet>(std::vector{path}, open_local_file, RecordSetOptions{});
  try {
    const Loader loader(set, image_fields(), options_of(1, 1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(path + ", record 0, whose contents begin at byte 12: field 'image': the 6 "
                                               "bytes are neither a JPEG nor a PNG image"));
  }
}

TEST(Loader, an_epoch_may_be_left_in_the_middle_any_number_of_times) {
  RecordFiles files;
  files.add(40);
  Loader loader(open_set(files), kFields, options_of(2, 4));
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
    loader.start_epoch(epoch);
    for (std::uint64_t i = 0; i < epoch % 5; ++i) EXPECT_TRUE(loader.next().has_value());
  }
  EXPECT_EQ(epoch_of(loader, 1).size(), 40U);
}

TEST(Loader, batches_outlive_their_loader) {
  RecordFiles files;
  files.add(8);
  std::optional<Batch> kept;
  std::vector<std::int64_t> labels;
  {
    Loader loader(open_set(files), kFields, options_of(4, 2));
    loader.start_epoch(0);
    kept.emplace(*loader.next());
    labels = labels_of(*kept);
  }
  EXPECT_EQ(labels_of(*kept), labels);
}

TEST(Loader, memory_stays_within_the_budget_and_a_caller_who_holds_everything_is_told) {
  RecordFiles files;
  // All batches take more than the budget, whichever of the threads have read a file.
  for (int i = 0; i < 10; ++i) files.add(100);
  LoaderOptions options = options_of(1, 2);
  options.memory_budget_bytes = 100'000;
  Loader loader(open_set(files), kFields, options);
  loader.start_epoch(0);
  std::vector<Batch> held;
  std::string error = "none";
  try {
    while (auto batch = loader.next()) {
      held.push_back(std::move(*batch));
      EXPECT_LE(loader.memory_bytes(), options.memory_budget_bytes);
    }
  } catch (const Error& failure) {
    error = failure.what();
  }
  EXPECT_THAT(error, HasSubstr("the program holds all"));
  EXPECT_GE(held.size(), 2U);
  held.clear();
  EXPECT_TRUE(loader.next().has_value()) << "and goes on once it has let go";
}

// Compressed files that many threads want at a time: where memory does not hold one for each, they take turns. A loader
// that was opened reads all samples, whatever its budget.
TEST(Loader, a_budget_that_holds_one_file_is_enough_for_any_number_of_threads) {
  RecordFiles files;
  for (int i = 0; i < 12; ++i)
    files.add(5 + i % 3, Compression::kGzip, 20'000);  // 40 KB a record, up to 280 KB a file.
  const auto set = open_set(files);
  const std::vector<Field> fields = {kFields[1]};
  int opened = 0;
  for (const std::uint64_t budget : {330'000, 400'000, 500'000, 700'000, 1'000'000, 3'000'000}) {
    for (const int threads : {1, 2, 8}) {
      for (const Shuffling shuffling : {Shuffling::kFull, Shuffling::kBlocks, Shuffling::kNone}) {
        SCOPED_TRACE(::testing::Message() << budget << " bytes, " << threads << " threads");
        LoaderOptions options = options_of(3, threads);
        options.sampling.shuffling = shuffling;
        options.sampling.open_blocks = shuffling == Shuffling::kBlocks ? 6 : 0;
        options.memory_budget_bytes = budget;
        std::unique_ptr<Loader> loader;
        try {
          loader = std::make_unique<Loader>(set, fields, options);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
          EXPECT_LT(budget, 500'000) << error.what();
          continue;
        }
        ++opened;
        for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
          std::vector<std::int64_t> seen;
          loader->start_epoch(epoch);
          while (const auto batch = loader->next()) {
            std::vector<std::int64_t> labels(3);
            std::memcpy(labels.data(), batch->field(0).data(), 3 * sizeof(std::int64_t));
            seen.insert(seen.end(), labels.begin(),
                        labels.begin() + static_cast<std::ptrdiff_t>(batch->samples().counted));
            EXPECT_LE(loader->memory_bytes(), budget);
          }
          std::ranges::sort(seen);
          std::vector<std::int64_t> all(static_cast<std::size_t>(set->count()));
          std::iota(all.begin(), all.end(), 0);
          EXPECT_EQ(seen, all);
        }
      }
    }
  }
  EXPECT_GE(opened, 36);
}

TEST(Loader, a_budget_that_is_too_small_says_what_is_needed) {
  RecordFiles files;
  files.add(4);
  LoaderOptions options = options_of(2, 2);
  options.memory_budget_bytes = 150;
  try {
    const Loader loader(open_set(files), kFields, options);
    FAIL() << "a loader within 150 bytes";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.what(), HasSubstr("budget"));
  }
}

TEST(Loader, the_first_sample_that_cannot_be_read_ends_the_epoch_at_its_batch) {
  RecordFiles files;
  for (int i = 0; i < 12; ++i) files.add(1, Compression::kGzip);
  const auto set = open_set(files);
  LoaderOptions options = options_of(2, 3);
  options.sampling.shuffling = Shuffling::kNone;
  for (const std::size_t bad : {7U, 9U}) {
    std::fstream file(files.names()[bad], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(30);
    file.put('\xff');
  }
  Loader loader(set, kFields, options);
  loader.start_epoch(0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(loader.next().has_value()) << i;
  for (int again = 0; again < 2; ++again) {
    try {
      static_cast<void>(loader.next());
      FAIL() << "a damaged file was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
      EXPECT_THAT(error.what(), HasSubstr(files.names()[7]));
    }
  }
  loader.start_epoch(0, 5);
  EXPECT_TRUE(loader.next().has_value()) << "another epoch, or step, is another try";
}

TEST(Loader, fields_that_the_records_lack_are_an_error_before_anything_starts) {
  RecordFiles files;
  files.add(4);
  try {
    const Loader loader(open_set(files), {{.name = "image", .shape = {8}}}, options_of(2, 1));
    FAIL() << "a field that is not there";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(files.names()[0] + ", record"));
    EXPECT_THAT(error.what(), HasSubstr("field 'image': the record has no feature 'image'; it has: x, label"));
  }
}

TEST(Loader, what_is_done_meanwhile_may_end_the_wait) {
  RecordFiles files;
  files.add(4);
  files.add(4);
  std::atomic<bool> open{false};
  std::atomic<int> opened{0};
  // One file is opened before the epoch, and stays open; the batch needs both.
  const auto slow = [&open, &opened](const std::string& name) {
    for (const bool waits = opened++ > 0; waits && !open;) std::this_thread::yield();
    return open_local_file(name);
  };
  const auto set = std::make_shared<RecordSet>(files.names(), slow, RecordSetOptions{.records_per_file = 4});
  Loader loader(set, kFields, options_of(8, 1));
  loader.start_epoch(0);
  EXPECT_THROW(static_cast<void>(loader.next([] { throw Error(ErrorCode::kShutDown, "Ctrl-C"); })), Error);
  open = true;
}

TEST(Loader, the_ledger_splits_every_wait_among_the_stages) {
  RecordFiles files;
  files.add(64, Compression::kGzip);
  Loader loader(open_set(files), kFields, options_of(4, 2));
  EXPECT_EQ(epoch_of(loader, 0).size(), 64U);
  const StallLedger ledger = loader.ledger();
  EXPECT_EQ(ledger.batches, 16U);
  EXPECT_GT(ledger.worked.total().count(), 0);
  EXPECT_GT(ledger.first_batch.count(), 0);
  EXPECT_NEAR(static_cast<double>(ledger.waited_for.total().count()), static_cast<double>(ledger.waited.count()),
              static_cast<double>(ledger.waited.count()) * 0.01 + 1e4);
}

}  // namespace
}  // namespace gyre::data
