#include "gyre/data/open_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/data/formats/idx.h"
#include "gyre/data/formats/image.h"
#include "gyre/data/formats/inflate.h"
#include "gyre/data/formats/tar.h"
#include "gyre/data/formats/tfrecord.h"
#include "gyre/data/image_folder.h"
#include "gyre/data/image_listing.h"
#include "gyre/data/parquet_set.h"
#include "gyre/data/pixel_sets.h"
#include "gyre/data/record_set.h"
#include "gyre/data/tar_set.h"

namespace gyre::data {
namespace {

constexpr std::size_t kRecordStartBytes = 12;  // A record's length and its checksum.

bool is_folder(const std::string& name, const FileOpener& open) {
  return open.folders().kind(name) == FileKind::kFolder;
}

/// Of a folder that is one set: its class folders, or images in it.
SampleFormat format_of_folder(const std::string& folder, const FileOpener& open) {
  LeftOut ignored;
  const FolderEntries entries = entries_of(open.folders(), folder, ignored);
  return entries.folders.empty() && !entries.images.empty() ? SampleFormat::kImages : SampleFormat::kImageFolder;
}

/// Nothing where the file is empty, or an archive without entries: these are found among files of any format.
std::optional<SampleFormat> format_of(const std::string& name, const FileOpener& open) {
  if (is_folder(name, open)) return format_of_folder(name, open);
  const std::string file_name = std::filesystem::path(name).filename().string();
  if (file_name.starts_with("data_batch_") || file_name == "test_batch" || file_name == "test_batch.bin") {
    return SampleFormat::kCifar10;
  }
  const auto file = open(name);
  std::array<std::byte, kTarBlockBytes> first{};
  const auto bytes = std::span(first).first(std::min<std::uint64_t>(first.size(), file->size_bytes()));
  file->read_at(0, bytes);
  if (std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; })) return std::nullopt;
  if (is_parquet(bytes) && !begins_with_record(bytes)) return SampleFormat::kParquet;
  if (is_tar_header(bytes)) return SampleFormat::kTar;
  const bool compressed_idx =
      file_name.find("-ubyte") != std::string::npos && sniff_compression(bytes) == Compression::kGzip;
  if (compressed_idx) return SampleFormat::kIdx;
  // A TFRecord file could begin with an IDX file's bytes: with a record of 0x…080000 bytes. Its checksum tells.
  if (begins_with_record(bytes)) return SampleFormat::kTfRecord;
  if (is_idx(bytes)) return SampleFormat::kIdx;
  return looks_like_image(bytes) || image_name(name) != ImageName::kNoImage ? SampleFormat::kImages
                                                                            : SampleFormat::kTfRecord;
}

/// Of the first file that shows it.
SampleFormat format_of(const std::vector<std::string>& names, const FileOpener& open) {
  for (const std::string& name : names) {
    if (const auto format = format_of(name, open)) return *format;
  }
  return open(names.front())->size_bytes() >= kTarBlockBytes ? SampleFormat::kTar : SampleFormat::kTfRecord;
}

/// Whether the file is recognised as one that holds samples, by more than its not being anything else.
bool holds_samples(const std::string& name, const FileOpener& open) {
  const auto format = format_of(name, open);
  if (format != SampleFormat::kTfRecord) return format && format != SampleFormat::kImages;
  const auto file = open(name);
  std::array<std::byte, kRecordStartBytes> first{};
  const auto bytes = std::span(first).first(std::min<std::uint64_t>(first.size(), file->size_bytes()));
  file->read_at(0, bytes);
  return begins_with_record(bytes) || tfrecord_compression(bytes) != Compression::kNone;
}

void refuse_labels(const std::vector<std::string>& names, const SampleOptions& options) {
  if (std::ranges::find(options.features, "label") == options.features.end()) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} holds images that have no labels: a folder with a folder for each class has them",
                          names.front()));
}

}  // namespace

std::vector<std::string> files_of_folder(const std::string& folder, const FileOpener& open) {
  LeftOut ignored;
  const FolderEntries entries = entries_of(open.folders(), folder, ignored);
  const auto path_of = [&](const std::string& name) { return (std::filesystem::path(folder) / name).string(); };
  const auto classed = [&](const std::string& name) { return has_image(open.folders(), path_of(name)); };
  if (!entries.images.empty() || std::ranges::any_of(entries.folders, classed)) return {folder};
  std::vector<std::string> files;
  for (const std::string& name : entries.others) files.push_back(path_of(name));
  if (entries.folders.empty() && files.empty()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("the folder {} is empty", folder));
  }
  // Class folders that are still empty, beside a labels.csv: their names are more than its contents.
  const auto samples = [&](const std::string& file) { return holds_samples(file, open); };
  return entries.folders.empty() || std::ranges::any_of(files, samples) ? files : std::vector{folder};
}

std::uint64_t files_checksum(const std::vector<std::string>& names, const FileOpener& open, const SampleSet& set,
                             const SampleOptions& options) {
  constexpr std::uint64_t kFirstBytes = std::uint64_t{64} << 10;
  std::string text = fmt::format("{}\n{}", set.count(), set.listing());
  if (is_folder(names.front(), open)) return xxh3_64(as_bytes(text));
  for (const std::string& name : names) text += "\n" + std::filesystem::path(name).filename().string();
  if (options.records_per_file > 0) return xxh3_64(as_bytes(text));
  // The order of blocks depends on where they end.
  std::uint64_t seed = xxh3_64(as_bytes(text));
  if (const auto ends = set.blocks().ends) seed = xxh3_64(std::as_bytes(std::span(*ends)), seed);
  const auto file = open(names.front());
  std::vector<std::byte> first(static_cast<std::size_t>(std::min(kFirstBytes, file->size_bytes())));
  file->read_at(0, first);
  return xxh3_64(first, seed);
}

std::shared_ptr<const SampleSet> open_samples(std::vector<std::string> names, const FileOpener& open,
                                              const SampleOptions& options) {
  if (names.empty()) throw Error(ErrorCode::kInvalidArgument, "a set of samples needs at least one file");
  const SampleFormat format = options.format == SampleFormat::kByContent ? format_of(names, open) : options.format;
  switch (format) {
    case SampleFormat::kImageFolder:
      if (names.size() > 1) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("an image folder is one folder, with a folder for each class; {} names were given",
                                names.size()));
      }
      return std::make_shared<ImageFolder>(std::move(names.front()), open, options.classes);
    case SampleFormat::kImages: refuse_labels(names, options); return std::make_shared<ImageFiles>(names, open);
    case SampleFormat::kTar: return std::make_shared<TarSet>(std::move(names), open, options.threads);
    case SampleFormat::kIdx: return std::make_shared<IdxSet>(names, open);
    case SampleFormat::kParquet:
      return open_parquet(
          std::move(names), open,
          {.columns = options.features, .pyarrow_folder = options.pyarrow_folder, .threads = options.threads});
    case SampleFormat::kCifar10: return std::make_shared<Cifar10Set>(names, open);
    default:
      return std::make_shared<RecordSet>(
          std::move(names), open,
          RecordSetOptions{.records_per_file = options.records_per_file, .threads = options.threads});
  }
}

}  // namespace gyre::data
